package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/httpapi"
)

// quiet lets nothing but the client's end wake a stream.
func quiet(o *httpapi.Options) { o.Recheck, o.Heartbeat = time.Hour, time.Hour }

// followers opens n raw streams of a silent log, and fails when headers and a comment do not come within a second.
func (w *world) followers(path string, n int) []net.Conn {
	w.t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			w.t.Fatal(err)
		}
		conns[i] = c
		start := time.Now()
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", path, w.key)
		_ = c.SetReadDeadline(start.Add(patience))
		in := bufio.NewReaderSize(c, 512)
		resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the connection is closed instead
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Accel-Buffering") != "no" {
			w.t.Fatal(resp, err)
		}
		line, err := bufio.NewReaderSize(resp.Body, 512).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, ": ") {
			w.t.Fatalf("the first line is %q, %v", line, err)
		}
		if took := time.Since(start); took > time.Second {
			w.t.Errorf("headers and a comment came after %s", took)
		}
	}
	return conns
}

// Clients of a silent log that break their connection leave nothing behind, although nothing is ever written to them.
func TestB40FiftyClientsReset(t *testing.T) {
	w := newWorldWith(t, quiet)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	http.DefaultClient.CloseIdleConnections()
	base := runtime.NumGoroutine()
	conns := w.followers("/api/v1/versions/"+v.ID+"/logs?container=silent", 50)
	if n := runtime.NumGoroutine(); n < base+50 {
		t.Fatalf("%d goroutines, %d before: the streams are not open", n, base)
	}
	for _, c := range conns {
		_ = c.(*net.TCPConn).SetLinger(0) // RST
		_ = c.Close()
	}
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > base; {
		if time.Now().After(end) {
			all := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), base, all[:runtime.Stack(all, true)])
		}
		runtime.Gosched()
	}
}

// What one follower holds: handler, connection, stacks. The test's own client and what the race detector adds are in it.
func TestFollowerMemory(t *testing.T) {
	w := newWorldWith(t, quiet)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := inUse()
	const n = 300
	conns := w.followers("/api/v1/versions/"+v.ID+"/logs?container=silent", n)
	each := (int64(inUse()) - int64(before)) / n
	t.Logf("%d bytes for each of %d followers", each, n)
	if each > 64<<10 {
		t.Errorf("%d bytes for each of %d followers, want at most %d", each, n, 64<<10)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

const shortWrite = 10 * time.Millisecond

// afterPause is more than any buffer on its way holds back.
var afterPause = strings.Repeat("and on it goes\n", 2000)

// A log may be silent for longer than a write may take.
func TestLogGoesOnAfterSilence(t *testing.T) {
	w := newWorldWith(t, func(o *httpapi.Options) { quiet(o); o.WriteLimit = shortWrite })
	v := must[version](w, w.do("POST", submit, submission()), 201)
	path := "/api/v1/versions/" + v.ID + "/logs?follow=true&container=pausing"
	if a := w.do("GET", path, nil); a.status != 200 || string(a.body) != "hello\n"+afterPause {
		t.Errorf("as text: status %d, %d bytes", a.status, len(a.body))
	}
	s, ended := w.open(path), false
	for e, ok := s.next(); ok; e, ok = s.next() {
		ended = ended || e.name == "end"
	}
	if !ended {
		t.Error("the events broke off")
	}
}

func TestLogParameters(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	path := "/api/v1/versions/" + v.ID + "/logs"
	for q, field := range map[string]string{
		"?since=yesterday": "since", "?since=-5m": "since", "?restart=-1": "restart", "?all_containers=true&container=main": "all_containers",
		"?all_containers=true&follow=true": "all_containers", "?all_attempts=true&attempt=1": "all_attempts", "?container=nope&all_attempts=true": "container",
		"?pod=nope": "pod", "?restart=7": "restart",
	} {
		if a := w.do("GET", path+q, nil); a.status != 400 || len(a.problem().Errors) != 1 || a.problem().Errors[0].Field != field {
			t.Errorf("%s: %d %s", q, a.status, a.body)
		}
	}
	for q, want := range map[string]string{
		"?since=10m": "since 10m0s ago\n", "?since=2020-11-30T08:00:00Z": "since 2020-11-30T08:00:00Z\n", "?all_attempts=true": "==> attempt 1 <==\nhello\n",
		"?pod=p&restart=0": "hello\n", "?all_containers=true": "hello\n",
	} {
		if a := w.do("GET", path+q, nil); a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %s", q, a.status, a.body)
		}
	}
	s := w.open(path + "?all_attempts=true")
	var names []string
	last := sent{}
	for e, ok := s.next(); ok; e, ok = s.next() {
		names, last = append(names, e.name), e
	}
	if got := strings.Join(names, " "); got != "attempt log end" {
		t.Errorf("events %s", got)
	}
	if a := w.do("GET", path+"?all_attempts=true", nil, "Accept", "text/event-stream", "Last-Event-ID", last.id); a.status != 204 {
		t.Errorf("a reconnect after the end: %d", a.status)
	}
}
