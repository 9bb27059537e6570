package cli

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// happenings plays a server whose stream breaks behind its second event, and goes on where the reader says. The user
// interrupts the second reading.
func happenings(t *testing.T, opened *[]string) []string {
	const at = `"at":"2026-03-01T12:00:00Z"`
	return server(t, map[string]http.HandlerFunc{
		"GET /events": func(w http.ResponseWriter, r *http.Request) {
			*opened = append(*opened, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
			if r.Header.Get("Last-Event-ID") == "" {
				events(w, "id: 1\nevent: orphan\ndata: {\"seq\":1,\"kind\":\"orphan\",\"message\":\"A Job\\u001b[31m of nobody.\","+at+"}\n\n"+
					"id: 2\nevent: lease\ndata: {\"seq\":2,\"kind\":\"lease\",\"message\":\"Taken over.\","+at+"}\n\n")
				return
			}
			events(w, "")
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		},
	})
}

func TestEventsGoOnAfterABreak(t *testing.T) {
	for name, test := range map[string]struct {
		args        []string
		first, want string
	}{
		"from now on": {nil, " ", "2026-03-01T12:00:00Z  1  orphan  A Job"},
		"of one kind, from the first": {[]string{"--kind", "lease", "--after", "0", "--project", "p"}, "project=p&after=0 ",
			"2026-03-01T12:00:00Z  2  lease  Taken over.\n"},
		"as JSON": {[]string{"-o", "json", "--kind", "lease"}, " ", `{"seq":2,"kind":"lease","message":"Taken over.","at":"2026-03-01T12:00:00Z"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var opened []string
			code, out, errs := execute(t, happenings(t, &opened), "", append([]string{"events"}, test.args...)...)
			if code != 0 || !strings.HasPrefix(out, test.want) || !strings.HasSuffix(out, "\n") || strings.Contains(out, "\x1b") {
				t.Errorf("exit code %d, %q, want %q: %s", code, out, test.want, errs)
			}
			if len(opened) != 2 || opened[0] != test.first || !strings.HasSuffix(opened[1], " 2") || strings.Contains(opened[1], "after=") {
				t.Errorf("opened %q", opened)
			}
			if strings.Contains(strings.Join(test.args, " "), "lease") && strings.Contains(out, "orphan") {
				t.Errorf("also other kinds: %q", out)
			}
		})
	}
}

func TestEventsRefused(t *testing.T) {
	env := server(t, map[string]http.HandlerFunc{
		"GET /events": answer(404, object{"status": 404, "code": "not_found", "title": "Not found", "detail": `there is no project "p"`}),
	})
	if code, out, errs := execute(t, env, "", "events", "--project", "p"); code == 0 || out != "" || !strings.Contains(errs, `there is no project "p"`) {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func TestTakeOver(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		answer object
		code   int
		says   string
	}{
		"done":    {200, object{"id": "c1", "name": "gpu", "health": "ready"}, 0, "gpu"},
		"in use":  {409, object{"status": 409, "code": "conflict", "title": "Conflict", "detail": "another server holds the Lease"}, ExitError, "another server holds the Lease"},
		"no such": {404, object{"status": 404, "code": "not_found", "title": "Not found", "detail": `there is no cluster "gpu"`}, ExitError, `there is no cluster "gpu"`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			env := server(t, map[string]http.HandlerFunc{"POST /clusters/gpu/take-over": func(w http.ResponseWriter, r *http.Request) {
				asked++
				answer(test.status, test.answer)(w, r)
			}})
			code, out, errs := execute(t, env, "", "clusters", "take-over", "gpu")
			if code != test.code || asked != 1 || !strings.Contains(out+errs, test.says) {
				t.Errorf("exit code %d after %d requests: %q %q", code, asked, out, errs)
			}
		})
	}
	if code, _, errs := execute(t, nil, "", "clusters", "take-over"); code != ExitUsage || !strings.Contains(errs, "a cluster's name or id") {
		t.Errorf("%d %q", code, errs)
	}
}
