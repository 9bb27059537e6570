package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// stream is an open stream of events.
type stream struct {
	t      testing.TB
	header http.Header
	lines  chan string
	stop   context.CancelFunc
}

func (w *world) open(path string, headers ...string) *stream {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "key" {
			req.Header.Set("Authorization", "Bearer "+headers[i+1])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // the reader below closes it when the stream ends
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	s := &stream{t: w.t, header: resp.Header, lines: make(chan string, 1000), stop: stop}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.lines)
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		for in.Scan() {
			s.lines <- in.Text()
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
	return s
}

const patience = 10 * time.Second

// line returns the next line; false: the stream has ended.
func (s *stream) line() (string, bool) {
	s.t.Helper()
	select {
	case l, ok := <-s.lines:
		return l, ok
	case <-time.After(patience):
		s.t.Fatal("nothing comes")
		return "", false
	}
}

type sent struct{ id, name, data string }

// next returns the next event, past comments; false: the stream has ended.
func (s *stream) next() (e sent, ok bool) {
	s.t.Helper()
	for {
		l, ok := s.line()
		if !ok {
			return e, false
		}
		field, value, _ := strings.Cut(l, ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				return e, true
			}
		}
	}
}

func TestB40HeadersAndHeartbeats(t *testing.T) {
	w := newWorld(t)
	s := w.open("/api/v1/events")
	if s.header.Get("X-Accel-Buffering") != "no" || s.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("headers %v", s.header)
	}
	if l, _ := s.line(); !strings.HasPrefix(l, ": ") {
		t.Errorf("the first line is %q, want a comment", l)
	}
	for beats := 0; beats < 3; {
		if l, _ := s.line(); strings.HasPrefix(l, ": ") {
			beats++
		}
	}
}

func TestVersionEventsFromTheStartToTheEnd(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	other := must[version](w, w.do("POST", submit, submission()), 201)
	s := w.open("/api/v1/versions/" + v.ID + "/events")
	first, _ := s.next()
	if first.name != string(event.Submitted) {
		t.Fatalf("first %+v", first)
	}
	must[version](w, w.do("POST", "/api/v1/versions/"+other.ID+"/cancel", nil), 200)
	must[version](w, w.do("POST", "/api/v1/versions/"+v.ID+"/cancel", nil), 200)
	var names []string
	last := first
	for {
		e, ok := s.next()
		if !ok {
			t.Fatal("no end event")
		}
		names = append(names, e.name)
		if e.name == "end" {
			break
		}
		var data struct {
			VersionID string `json:"version_id"`
		}
		if err := json.Unmarshal([]byte(e.data), &data); err != nil || data.VersionID != v.ID {
			t.Errorf("%v: %s", err, e.data)
		}
		last = e
	}
	if got := strings.Join(names, " "); got != "cancel-requested state end" {
		t.Errorf("got %s", got)
	}
	if _, ok := s.next(); ok {
		t.Error("something follows the end")
	}
	// Resumed behind the first: the rest comes once more, and the end.
	again := w.open("/api/v1/versions/"+v.ID+"/events", "Last-Event-ID", first.id)
	if e, _ := again.next(); e.name != "cancel-requested" {
		t.Errorf("got %+v", e)
	}
	if e, _ := again.next(); e.id != last.id {
		t.Errorf("got %+v", e)
	}
	if e, _ := again.next(); e.name != "end" {
		t.Errorf("got %+v", e)
	}
}

// Streams that are opened, resumed and slow while many events are written see each of them once and in order.
func TestEventsEachOnce(t *testing.T) {
	w := newWorld(t)
	const submissions = 300
	body := object{"items": func() (all []any) {
		for i := range 10 {
			all = append(all, submission(set("name", fmt.Sprint("p", i))))
		}
		return all
	}()}
	early := w.open("/api/v1/events?after=0")
	var wg sync.WaitGroup
	wg.Go(func() {
		for range submissions / 10 {
			if a := w.do("POST", submit+"/bulk", body); a.status != 201 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
	read := func(s *stream, after, n int) {
		for want := after + 1; want <= after+n; want++ {
			e, ok := s.next()
			if !ok || e.id != fmt.Sprint(want) {
				t.Errorf("event %s (%v), want %d", e.id, ok, want)
				return
			}
		}
	}
	read(early, 0, submissions)
	wg.Wait()
	read(w.open("/api/v1/events?after=0"), 0, submissions)
	read(w.open("/api/v1/events", "Last-Event-ID", "123"), 123, submissions-123)
}

func TestEventsOfOnesOwnProjects(t *testing.T) {
	w := newWorld(t)
	must[object](w, w.do("POST", "/api/v1/users", object{"name": "eve"}), 201)
	key := must[struct{ Key string }](w, w.do("POST", "/api/v1/api-keys", object{"name": "k", "user": "eve"}), 201).Key
	must[object](w, w.do("POST", "/api/v1/projects", object{"name": "hers", "members": []string{"eve"}}), 201)
	s := w.open("/api/v1/events", "key", key)
	must[version](w, w.do("POST", submit, submission()), 201)
	mine := must[version](w, w.do("POST", "/api/v1/projects/hers/processes", submission()), 201)
	if e, _ := s.next(); !strings.Contains(e.data, mine.ID) {
		t.Errorf("got %s", e.data)
	}
}

// A key that was revoked, or a user who was taken out of a project, sees no more of it on the streams that are open.
func TestStreamsEndWithTheRight(t *testing.T) {
	for name, take := range map[string]func(w *world, prefix string){
		"key revoked": func(w *world, prefix string) {
			if a := w.do("DELETE", "/api/v1/api-keys/"+prefix, nil); a.status != 204 {
				w.t.Fatalf("%d %s", a.status, a.body)
			}
		},
		"no member any more": func(w *world, _ string) {
			must[object](w, w.do("PATCH", "/api/v1/projects/hers", object{"members": []string{}}), 200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must[object](w, w.do("POST", "/api/v1/users", object{"name": "eve"}), 201)
			key := must[struct{ Key string }](w, w.do("POST", "/api/v1/api-keys", object{"name": "k", "user": "eve"}), 201).Key
			must[object](w, w.do("POST", "/api/v1/projects", object{"name": "hers", "members": []string{"eve"}}), 201)
			v := must[version](w, w.do("POST", "/api/v1/projects/hers/processes", submission()), 201)
			streams := map[string]*stream{}
			for _, path := range []string{"/events?project=hers", "/versions/" + v.ID + "/events", "/versions/" + v.ID + "/logs?container=silent"} {
				streams[path] = w.open("/api/v1"+path, "key", key)
			}
			take(w, strings.Split(key, "_")[1])
			end := time.Now().Add(patience)
			for path, s := range streams {
				for ok := true; ok; {
					if _, ok = s.line(); ok && time.Now().After(end) {
						t.Fatalf("%s goes on", path)
					}
				}
			}
		})
	}
}

// Whoever resumes behind the last event, as after a restored backup, is told so instead of hearing nothing.
func TestEventsBehindTheLast(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	for _, path := range []string{"/api/v1/events", "/api/v1/versions/" + v.ID + "/events"} {
		a := w.do("GET", path, nil, "Last-Event-ID", "999999")
		if a.status != 400 || len(a.problem().Errors) != 1 || a.problem().Errors[0].Field != "Last-Event-ID" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestStreamsEndAtDrain(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	all := []*stream{
		w.open("/api/v1/events"), w.open("/api/v1/versions/" + v.ID + "/events"), w.open("/api/v1/versions/" + v.ID + "/logs?container=silent"),
	}
	w.api.Drain()
	w.api.Drain()
	for i, s := range all {
		for {
			if _, ok := s.next(); !ok {
				break
			}
		}
		_ = i
	}
}

func TestLogs(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	path := "/api/v1/versions/" + v.ID + "/logs"
	a := w.do("GET", path, nil)
	if a.status != 200 || string(a.body) != "hello\n" || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	s := w.open(path)
	log, _ := s.next()
	end, _ := s.next()
	if log.name != "log" || log.data != `{"text":"hello\n"}` || end.name != "end" || !strings.Contains(end.data, `"succeeded"`) {
		t.Errorf("got %+v %+v", log, end)
	}
	if a := w.do("GET", path, nil, "Accept", "text/event-stream", "Last-Event-ID", end.id); a.status != 204 {
		t.Errorf("a reconnect after the end: %d", a.status)
	}
	for q, field := range map[string]string{"?attempt=7": "attempt", "?container=nope": "container", "?tail=-1": "tail"} {
		if a := w.do("GET", path+q, nil); a.status != 400 || len(a.problem().Errors) != 1 || a.problem().Errors[0].Field != field {
			t.Errorf("%s: %d %s", q, a.status, a.body)
		}
	}
	if a := w.do("GET", path, nil, "Last-Event-ID", "rubbish"); a.status != 400 || a.problem().Errors[0].Field != "Last-Event-ID" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The list and the stream tell the same, with names, page by page.
func TestTimeline(t *testing.T) {
	w := newWorld(t)
	read := func(a answer, v any) {
		if err := json.Unmarshal(a.body, v); err != nil {
			t.Fatal(err)
		}
	}
	var v struct{ ID string }
	read(w.do("POST", submit, submission()), &v)
	w.do("POST", "/api/v1/versions/"+v.ID+"/cancel", nil)
	type timeline struct {
		Items     []json.RawMessage
		NextAfter int64 `json:"next_after"`
	}
	var all []string
	for after := int64(0); ; {
		var page timeline
		read(w.do("GET", fmt.Sprintf("/api/v1/versions/%s/timeline?limit=2&after=%d", v.ID, after), nil), &page)
		for _, e := range page.Items {
			all = append(all, string(e))
		}
		if after = page.NextAfter; after == 0 {
			break
		}
	}
	if len(all) != 3 || !strings.Contains(all[0], `"actor_name":"admin"`) || !strings.Contains(all[0], `"attempt_number":1`) || !strings.Contains(all[2], `"state":"cancelled"`) {
		t.Errorf("%q", all)
	}
	s := w.open("/api/v1/versions/" + v.ID + "/events")
	for i := 0; ; i++ {
		e, ok := s.next()
		if !ok || e.name == "end" {
			if i != len(all) {
				t.Errorf("the stream has %d events, the list %d", i, len(all))
			}
			break
		}
		if e.data != all[i] {
			t.Errorf("stream %s, list %s", e.data, all[i])
		}
	}
	if a := w.do("GET", "/api/v1/versions/none/timeline", nil); a.status != 404 {
		t.Errorf("status %d", a.status)
	}
}
