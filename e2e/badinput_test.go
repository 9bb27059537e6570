package e2e

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// Bad input: a clear 4xx with a code, nothing stored, nothing above info in the server's log.
func TestBadInput(t *testing.T) {
	var mu sync.Mutex
	var log []string
	w := newWorld(t, func(o *stack.ServerOptions) {
		o.Env = append(o.Env, "NAGELFLUH_LOG_FORMAT=json")
		o.Line = func(s string) { mu.Lock(); defer mu.Unlock(); log = append(log, s) }
	})
	mu.Lock()
	log = nil
	mu.Unlock()

	good := submission("x", 0, "true")
	with := func(change func(body, spec map[string]any)) map[string]any {
		b := submission("x", 0, "true")
		change(b, b["spec"].(map[string]any))
		return b
	}
	cases := map[string]struct {
		body   any
		key    string // API key; empty: the admin's
		path   string
		status []int
		field  string
	}{
		"unknown cluster": {body: with(func(_, s map[string]any) { s["cluster"] = "nowhere" }), status: []int{404, 422}, field: "cluster"},
		"negative GPU":    {body: with(func(_, s map[string]any) { s["limits"] = map[string]string{"nvidia.com/gpu": "-1"} }), status: []int{422}, field: "nvidia.com/gpu"},
		"fractional GPU":  {body: with(func(_, s map[string]any) { s["limits"] = map[string]string{"nvidia.com/gpu": "1.5"} }), status: []int{422}, field: "nvidia.com/gpu"},
		"request is not limit": {body: with(func(_, s map[string]any) {
			s["limits"] = map[string]string{"nvidia.com/gpu": "3"}
			s["requests"] = map[string]string{"nvidia.com/gpu": "1"}
		}), status: []int{422}, field: "nvidia.com/gpu"},
		"spec of 4 MB":           {body: with(func(_, s map[string]any) { s["args"] = []string{strings.Repeat("x", 4<<20)} }), status: []int{413}},
		"broken JSON":            {body: []byte(`{"name": "x", `), status: []int{400}},
		"not an object":          {body: []byte(`[]`), status: []int{400, 422}},
		"unknown field":          {body: with(func(b, _ map[string]any) { b["colour"] = "red" }), status: []int{400, 422}},
		"no image":               {body: with(func(_, s map[string]any) { delete(s, "image") }), status: []int{400, 422}},
		"wrong key":              {body: good, key: "ngf_aaaaaaaa_wrong", status: []int{401}},
		"no key":                 {body: good, key: "-", status: []int{401}},
		"unknown project":        {body: good, path: "/projects/nothing/processes", status: []int{404}},
		"bulk with one bad item": {body: map[string]any{"items": []any{good, with(func(_, s map[string]any) { s["cluster"] = "nowhere" })}}, path: "/projects/default/processes/bulk", status: []int{404, 422}, field: "items[1]"},
		"empty bulk":             {body: map[string]any{"items": []any{}}, path: "/projects/default/processes/bulk", status: []int{400, 422}},
	}
	admin := w.Key
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w.Key = admin
			if c.key != "" {
				w.Key = strings.Trim(c.key, "-")
			}
			defer func() { w.Key = admin }()
			path := c.path
			if path == "" {
				path = "/projects/default/processes"
			}
			r, err := w.Do(t.Context(), http.MethodPost, path, c.body)
			if err != nil {
				t.Fatal(err)
			}
			ok := false
			for _, s := range c.status {
				ok = ok || r.Status == s
			}
			if !ok || r.Code() == "" || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
				t.Errorf("status %d, code %q, type %q, want one of %v and a code: %s", r.Status, r.Code(), r.Header.Get("Content-Type"), c.status, head(r.Body))
			}
			if !bytes.Contains(r.Body, []byte(c.field)) {
				t.Errorf("the answer does not name %q: %s", c.field, head(r.Body))
			}
		})
	}

	all, err := w.versions()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 0 {
		t.Errorf("%d versions were stored, want none", len(all))
	}
	mu.Lock()
	defer mu.Unlock()
	for _, line := range log {
		for _, level := range []string{`"warn"`, `"error"`} {
			if strings.Contains(line, `"@level":`+level) {
				t.Errorf("bad input is logged above info: %s", line)
			}
		}
	}
}

// The same key and body is the same version; another body under a key is refused.
func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t, nil)
	send := func(body map[string]any, key string) stack.Response {
		t.Helper()
		r, err := w.Do(t.Context(), http.MethodPost, "/projects/default/processes", body, "Idempotency-Key", key)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := send(submission("once", 0, "true"), "k1")
	again := send(submission("once", 0, "true"), "k1")
	other := send(submission("once", 0, "false"), "k1")
	if first.Status != 201 || again.Status != 200 {
		t.Errorf("statuses %d and %d, want 201 and 200: %s %s", first.Status, again.Status, head(first.Body), head(again.Body))
	}
	if (other.Status != 409 && other.Status != 422) || other.Code() == "" {
		t.Errorf("another body under the key: status %d code %q", other.Status, other.Code())
	}
	if all := w.allEnded(minute); len(all) != 1 {
		t.Errorf("%d versions, want one", len(all))
	}
}

func head(b []byte) string {
	if len(b) > 400 {
		return string(b[:400]) + "…"
	}
	return string(b)
}
