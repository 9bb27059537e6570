package logs

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// decoded is the log within server-sent events.
func decoded(t *testing.T, stream string) string {
	t.Helper()
	var all []byte
	for _, e := range events(t, stream) {
		switch e.name {
		case "log":
			var l LogEvent
			if err := json.Unmarshal([]byte(e.data), &l); err != nil {
				t.Fatal(err)
			}
			if len(l.Raw) > 0 {
				all = append(all, l.Raw...)
			} else {
				all = append(all, l.Text...)
			}
		case "pod", "end", "note":
		default:
			t.Fatalf("an injected event: %+v", e)
		}
	}
	return string(all)
}

// A million short lines, cut in the middle, by all ways.
func TestAMillionLines(t *testing.T) {
	var stamped, plain bytes.Buffer
	second := map[string]int{} // where it begins
	for i := range 1_000_000 {
		at := t0.Add(time.Duration(i) * 50 * time.Microsecond)
		if i%20_000 == 0 {
			second[at.Format(time.RFC3339)] = stamped.Len()
		}
		stamped.Write(at.AppendFormat(stamped.AvailableBuffer(), "2006-01-02T15:04:05.000000000Z07:00 "))
		stamped.WriteString(strconv.Itoa(i) + "\n")
		plain.WriteString(strconv.Itoa(i) + "\n")
	}
	var opens atomic.Int32
	r := newRig(t, nil)
	r.k.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		answer := stamped.Bytes()[second[q.URL.Query().Get("sinceTime")]:]
		if opens.Add(1) == 1 {
			_, _ = w.Write(answer[:len(answer)/2])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(answer)
	})
	var live bytes.Buffer
	seq, err := r.reader.Follow(t.Context(), id, FollowOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- WriteSSE(&live, func() error { return nil }, seq) }()
	r.ensure(pod("pod", running("main")))
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if err := <-done; err != nil || !m.Complete() {
		t.Fatal(err, m)
	}
	if got := decoded(t, live.String()); got != plain.String() {
		t.Error("events:", differ(got, plain.String()))
	}
	if seq, err = r.reader.Follow(t.Context(), id, FollowOptions{}); err != nil {
		t.Fatal(err)
	}
	var download bytes.Buffer
	if err := WriteText(&download, func() error { return nil }, false, seq); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(download.Bytes(), plain.Bytes()) {
		t.Error("download:", differ(download.String(), plain.String()))
	}
	if opens.Load() < 2 {
		t.Error("it was not cut")
	}
}
