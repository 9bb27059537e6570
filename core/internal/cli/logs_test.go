package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// All attempts in one stream that breaks twice: every line once, every attempt announced once, the exit code of the last; and
// what is opened again before anything came asks for no less than at first.
func TestFollowAllAttempts(t *testing.T) {
	var asked []string
	env := server(t, map[string]http.HandlerFunc{
		"GET /versions/v": answer(200, object{"id": "v"}),
		"GET /versions/v/logs": func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			ago, err := time.ParseDuration(q.Get("since"))
			if err != nil || ago < 10*time.Minute || len(asked) > 0 && ago == 10*time.Minute || q.Get("all_attempts") != "true" || q.Get("pod") != "p" {
				t.Errorf("asked for %s", r.URL.RawQuery)
			}
			last := r.Header.Get("Last-Event-ID")
			asked = append(asked, last)
			w.Header().Set("Content-Type", "text/event-stream")
			event := func(id, name, data string) { fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", id, name, data) }
			switch len(asked) {
			case 1: // nothing comes
			case 2:
				event("", "attempt", `{"attempt":1,"id":"a1"}`)
				event("1", "pod", `{"pod":"p","container":"main","number":1}`)
				event("2", "log", `{"text":"one\n"}`)
			case 3:
				event("2", "attempt", `{"attempt":1,"id":"a1"}`)
				event("2", "pod", `{"pod":"p","container":"main","number":1}`)
				event("3", "log", `{"text":"two\n"}`)
				event("3", "attempt", `{"attempt":2,"id":"a2"}`)
				event("4", "pod", `{"pod":"p","container":"main","number":1}`)
				event("5", "log", `{"text":"three\n"}`)
				event("6", "pod", `{"pod":"p","container":"main","restart":1,"number":1}`)
				event("7", "end", `{"state":"failed","exit_code":7,"complete":true}`)
			}
		},
	})
	code, out, errs := execute(t, env, "", "logs", "-f", "--all-attempts", "--since", "10m", "--pod", "p", "v")
	if code != 7 || out != "one\ntwo\nthree\n" {
		t.Errorf("code %d, output %q, %s", code, out, errs)
	}
	if got := strings.Join(asked, ","); got != ",,2" {
		t.Errorf("resumed at %s", got)
	}
	for line, n := range map[string]int{"==> attempt 1 <==": 1, "==> attempt 2 <==": 1, "==> pod p, container main <==": 1} {
		if strings.Count(errs, line) != n {
			t.Errorf("%q is not there %d times: %s", line, n, errs)
		}
	}
}
