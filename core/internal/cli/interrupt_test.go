package cli

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// interrupted runs a job that goes on until it is cancelled, and sends one interrupt once its log is open.
func interrupted(t *testing.T, args ...string) (code int, errs string, cancelled bool) {
	t.Helper()
	v := object{"id": "v1", "number": 1, "process_name": "p", "state": "running", "attempt": object{}}
	cancel := make(chan struct{})
	env := server(t, map[string]http.HandlerFunc{
		"POST /projects/default/processes": answer(201, v),
		"GET /versions/v1":                 answer(200, v),
		"POST /versions/v1/cancel": func(w http.ResponseWriter, r *http.Request) {
			close(cancel)
			answer(200, v)(w, r)
		},
		"GET /versions/v1/events": func(w http.ResponseWriter, r *http.Request) {
			events(w, "")
			select {
			case <-r.Context().Done():
			case <-cancel:
				events(w, "event: end\ndata: {}\n\n")
			}
		},
		"GET /versions/v1/logs": func(w http.ResponseWriter, r *http.Request) {
			events(w, "")
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
			select {
			case <-r.Context().Done():
			case <-cancel:
				events(w, "id: x\nevent: end\ndata: {\"state\":\"cancelled\",\"complete\":true}\n\n")
			}
		},
	})
	code, _, errs = execute(t, env, "", append([]string{"run", "--image", "busybox"}, args...)...)
	select {
	case <-cancel:
		cancelled = true
	default:
	}
	return code, errs, cancelled
}

func TestInterruptDetaches(t *testing.T) {
	code, errs, cancelled := interrupted(t)
	if code != ExitDetached || cancelled || !strings.Contains(errs, "nagelfluh logs -f v1") {
		t.Errorf("exit code %d, cancelled %v: %s", code, cancelled, errs)
	}
}

func TestInterruptCancels(t *testing.T) {
	code, errs, cancelled := interrupted(t, "--cancel-on-interrupt")
	if code != ExitCancelled || !cancelled {
		t.Errorf("exit code %d, cancelled %v: %s", code, cancelled, errs)
	}
}
