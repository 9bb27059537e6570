package faultproxy

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestReorderLetsTheSecondGoFirst(t *testing.T) {
	p, s, c, host := start(t)
	turns := &pairs{limit: 10 * time.Second}
	p.Add(turns.serve, On("GET", "^/turn"))
	var wg sync.WaitGroup
	send := func(path string) {
		wg.Go(func() {
			if status, _, err := get(t, c, host+path, 10*time.Second); status != 200 {
				t.Errorf("%s: status %d, %v", path, status, err)
			}
		})
	}
	send("/turn/1")
	for !turns.waits() { // the second is sent after it
		runtime.Gosched()
	}
	send("/turn/2")
	wg.Wait()
	if first, second := <-s.paths, <-s.paths; first != "/turn/2" || second != "/turn/1" {
		t.Errorf("the target saw %s, then %s", first, second)
	}

	p.Add(Reorder(20*time.Millisecond), On("GET", "^/alone"))
	if status, _, err := get(t, c, host+"/alone", 10*time.Second); status != 200 {
		t.Errorf("alone: status %d, %v", status, err)
	}
}

func TestReorderEvents(t *testing.T) {
	frame := func(s string) string { return string([]byte{0, 0, 0, byte(len(s))}) + s }
	for name, c := range map[string]struct{ in, want string }{
		"JSON":      {"{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n", "{\"b\":2}\n{\"a\":1}\n"},
		"protobuf":  {frame("one") + frame("two") + frame("three") + frame("four"), frame("two") + frame("one") + frame("four") + frame("three")},
		"cut event": {frame("one") + frame("two")[:5], ""},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, parts bytes.Buffer
			if _, err := (&swapper{out: &whole}).Write([]byte(c.in)); err != nil {
				t.Fatal(err)
			}
			s := &swapper{out: &parts}
			for i := range len(c.in) {
				if _, err := s.Write([]byte(c.in[i : i+1])); err != nil {
					t.Fatal(err)
				}
			}
			if whole.String() != c.want || parts.String() != c.want {
				t.Errorf("got %q and, byte by byte, %q, want %q", whole.String(), parts.String(), c.want)
			}
		})
	}
}
