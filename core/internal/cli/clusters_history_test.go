package cli

import (
	"net/http"
	"strings"
	"testing"
)

func TestClustersHistory(t *testing.T) {
	env := server(t, map[string]http.HandlerFunc{
		"GET /clusters/gpu/history": answer(200, object{"items": []object{
			{"at": "2026-11-29T12:00:00Z", "from": "ready", "to": "suspect", "reason": "timeout", "message": "No answer in time"},
		}}),
	})
	code, out, errs := execute(t, env, "", "clusters", "history", "gpu")
	if code != 0 || !strings.Contains(out, "FROM") || !strings.Contains(out, "suspect") || !strings.Contains(out, "No answer in time") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
