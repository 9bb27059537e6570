package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/metrics"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlugins serve one type with a token in its config.
type fakePlugins struct{}

func (fakePlugins) List() []plugin.Status {
	return []plugin.Status{{Name: "provider-fake", Kind: plugin.Provider, State: plugin.Running, Types: []string{"fake"}}}
}
func (fakePlugins) Types() []plugin.TypeInfo {
	return []plugin.TypeInfo{{Name: "fake", Plugin: "provider-fake"}}
}
func (fakePlugins) ServedTypes() map[string]string {
	return map[string]string{"fake": "provider-fake", "same-as-backend": "x"}
}

func (fakePlugins) ValidateConfig(_ context.Context, kind string, config json.RawMessage) (json.RawMessage, []string, error) {
	if kind != "fake" {
		return nil, nil, problem.InField(problem.UnknownClusterType, "type", "no provider plugin serves %q", kind)
	}
	var c struct{ Token string }
	if json.Unmarshal(config, &c) != nil || c.Token == "" {
		return nil, nil, problem.InField(problem.Invalid, "provider_config.token", "is missing")
	}
	return config, []string{"a warning"}, nil
}

// fakeLogs has the log of any attempt.
type fakeLogs struct{}

func (fakeLogs) Follow(ctx context.Context, attemptID string, o logs.FollowOptions) (iter.Seq2[logs.Chunk, error], error) {
	if o.Container == "nope" {
		return nil, &logs.UnknownContainerError{Container: "nope", Known: []string{"main"}}
	}
	if o.Pod == "nope" {
		return nil, logs.ErrNoPod
	}
	if o.Restart != nil && *o.Restart > 0 {
		return nil, logs.ErrNoInstance
	}
	text := "hello\n"
	if ago := time.Since(o.Since).Round(10 * time.Minute); ago < time.Hour {
		text = "since " + ago.String() + " ago\n"
	} else if !o.Since.IsZero() {
		text = "since " + o.Since.Format(time.RFC3339) + "\n"
	}
	at := logs.Cursor{AttemptID: attemptID, Pod: "p", Container: "main", Offset: 6}
	return func(yield func(logs.Chunk, error) bool) {
		if !yield(logs.Chunk{Kind: logs.ChunkData, Data: []byte(text), Cursor: at}, nil) {
			return
		}
		if o.Container == "pausing" {
			<-time.After(20 * shortWrite)
			if !yield(logs.Chunk{Kind: logs.ChunkData, Data: []byte(afterPause), Cursor: at}, nil) {
				return
			}
		}
		if o.Follow && o.Container == "silent" {
			<-ctx.Done()
			yield(logs.Chunk{}, ctx.Err())
			return
		}
		at.End = true
		yield(logs.Chunk{Kind: logs.ChunkEnd, Cursor: at, End: &logs.End{State: process.Succeeded, Complete: true}}, nil)
	}, nil
}

// world is a server on a real database.
type world struct {
	t   testing.TB
	db  *store.DB
	api *httpapi.Server
	url string
	key string // the admin's
	log *lockedBuffer

	tester    cluster.Tester
	selectors []storage.Selector // for the storage of new projects
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldFor(t)
}

func newWorldFor(t testing.TB) *world {
	t.Helper()
	return newWorldWith(t, func(*httpapi.Options) {})
}

func newWorldWith(t testing.TB, change func(*httpapi.Options)) *world {
	t.Helper()
	w := &world{t: t, log: &lockedBuffer{}}
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: w.log, JSONFormat: true})
	box := secret.NewBox(filepath.Join(t.TempDir(), "keyset.json"))
	var err error
	if w.db, err = store.Open(t.Context(), store.Options{
		URL: "sqlite:" + filepath.Join(t.TempDir(), "x.db"), Sealer: box,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	keys := auth.NewService(w.db)
	if _, err := keys.Bootstrap(t.Context(), func(key string) error { w.key = key; return nil }); err != nil {
		t.Fatal(err)
	}
	w.tester = &fakeTester{}
	clusters := cluster.NewService(w.db, fakePlugins{}, w, fakeRemover{w.db})
	engine := placement.New(placement.Options{
		Store: w.db, Selectors: func() []placement.Selector { return nil }, ServedTypes: fakePlugins{}.ServedTypes, Ledger: placement.NewLedger(),
	})
	o := httpapi.Options{
		Store: w.db, Auth: keys, Processes: process.NewService(w.db, httpapi.ClusterFinder(clusters)), Clusters: clusters,
		Storage:   storage.NewService(storage.Options{Store: w.db, Tester: storageTester{}, Selectors: func() []storage.Selector { return w.selectors }}),
		Placement: engine, Plugins: fakePlugins{}, Logs: fakeLogs{}, Metrics: metrics.New(), Logger: logger, Heartbeat: 50 * time.Millisecond,
		Recheck: 20 * time.Millisecond,
	}
	change(&o)
	w.api, err = httpapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.api.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	srv := httptest.NewServer(w.api)
	t.Cleanup(func() {
		w.api.Drain()
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	w.url = srv.URL
	return w
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) problem() (p struct {
	Code    string
	Detail  string
	Status  int
	Errors  []struct{ Field, Message string }
	Details map[string]any
	ID      string `json:"request_id"`
}) {
	_ = json.Unmarshal(a.body, &p)
	return p
}

// do sends a request; headers come in pairs and "key" is the API key.
func (w *world) do(method, path string, body any, headers ...string) answer {
	w.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, r)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "key" {
			req.Header.Set("Authorization", "Bearer "+headers[i+1])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, context.Canceled) {
		w.t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: raw}
}

// must decodes an answer of the wanted status.
func must[T any](w *world, a answer, status int) (out T) {
	w.t.Helper()
	if a.status != status {
		w.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal(a.body, &out); err != nil {
		w.t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

type object = map[string]any

func submission(change ...func(body, spec object)) object {
	spec := object{"image": "busybox", "command": []string{"true"}}
	body := object{"name": "x", "spec": spec}
	for _, c := range change {
		c(body, spec)
	}
	return body
}

func limit(q string) func(_, spec object) {
	return func(_, spec object) { spec["limits"] = object{"nvidia.com/gpu": q} }
}

func set(key string, v any) func(body, _ object)     { return func(body, _ object) { body[key] = v } }
func setSpec(key string, v any) func(_, spec object) { return func(_, spec object) { spec[key] = v } }

const submit = "/api/v1/projects/default/processes"

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	tests := map[string]struct {
		method, path string
		body         any
		headers      []string
		status       int
		code         string
		field        string
	}{
		"unknown cluster":       {body: submission(setSpec("cluster", "nowhere")), status: 422, code: "unknown_cluster", field: "spec.cluster"},
		"negative GPU":          {body: submission(limit("-1")), status: 422, code: "invalid", field: "spec.limits[nvidia.com/gpu]"},
		"fractional GPU":        {body: submission(limit("1.5")), status: 422, code: "invalid", field: "spec.limits[nvidia.com/gpu]"},
		"GPU as a number":       {body: submission(setSpec("limits", object{"nvidia.com/gpu": -1})), status: 422, code: "invalid", field: "spec.limits[nvidia.com/gpu]"},
		"4 MB spec":             {body: submission(setSpec("args", []string{strings.Repeat("x", 4<<20)})), status: 413, code: "too_large"},
		"not UTF-8":             {body: "{\"name\": \"\xff\"}", status: 400, code: "malformed_json"},
		"broken JSON":           {body: `{"name": "x", `, status: 400, code: "malformed_json"},
		"no JSON at all":        {body: `hello`, status: 400, code: "malformed_json"},
		"trailing garbage":      {body: `{"name":"x","spec":{"image":"i"}} {`, status: 400, code: "malformed_json"},
		"a list":                {body: `[]`, status: 422, code: "invalid", field: "body"},
		"empty body":            {body: ``, status: 422, code: "invalid", field: "body"},
		"unknown field":         {body: submission(set("colour", "red")), status: 422, code: "invalid", field: "colour"},
		"key in other case":     {body: submission(set("Name", "y")), status: 422, code: "invalid", field: "Name"},
		"unknown field in spec": {body: submission(setSpec("gpus", 1)), status: 422, code: "invalid", field: "spec.gpus"},
		"no image":              {body: object{"name": "x", "spec": object{}}, status: 422, code: "invalid", field: "spec.image"},
		"no name":               {body: object{"spec": object{"image": "i"}}, status: 422, code: "invalid", field: "name"},
		"number for a name":     {body: submission(set("name", 5)), status: 422, code: "invalid", field: "name"},
		"control character":     {body: submission(set("name", "a\u0000b")), status: 422, code: "invalid", field: "name"},
		"wrong key":             {body: submission(), headers: []string{"key", "ngf_aaaaaaaa_wrong"}, status: 401, code: "unauthenticated"},
		"no key":                {body: submission(), headers: []string{"Authorization", ""}, status: 401, code: "unauthenticated"},
		"another scheme":        {body: submission(), headers: []string{"Authorization", "Basic abc"}, status: 401, code: "unauthenticated"},
		"a form":                {body: `name=x`, headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "unsupported_media_type"},
		"unknown project":       {path: "/api/v1/projects/nothing/processes", body: submission(), status: 404, code: "not_found"},
		"key too long":          {body: submission(), headers: []string{"Idempotency-Key", strings.Repeat("k", 256)}, status: 400, code: "bad_parameter", field: "Idempotency-Key"},
		"two different keys":    {body: submission(set("key", "a")), headers: []string{"Idempotency-Key", "b"}, status: 422, code: "invalid", field: "key"},
		"bulk with a bad item":  {path: submit + "/bulk", body: object{"items": []any{submission(), submission(setSpec("cluster", "nowhere"))}}, status: 422, code: "unknown_cluster", field: "items[1].spec.cluster"},
		"bulk against contract": {path: submit + "/bulk", body: object{"items": []any{submission(), submission(set("x", 1))}}, status: 422, code: "invalid", field: "items[1].x"},
		"empty bulk":            {path: submit + "/bulk", body: object{"items": []any{}}, status: 422, code: "invalid", field: "items"},
		"dry run":               {path: submit + "/dry-run", body: submission(limit("-1")), status: 422, code: "invalid", field: "spec.limits[nvidia.com/gpu]"},
		"unknown route":         {method: "GET", path: "/api/v1/nothing", status: 404, code: "route_not_found"},
		"unknown route outside": {method: "GET", path: "/nothing", status: 404, code: "route_not_found"},
		"unknown method":        {method: "PUT", path: submit, body: submission(), status: 405, code: "method_not_allowed"},
		"unknown version":       {method: "GET", path: "/api/v1/versions/nothing", status: 404, code: "not_found"},
		"bad state":             {method: "GET", path: "/api/v1/versions?state=sleeping", status: 400, code: "bad_parameter", field: "state"},
		"B74 page size 0":       {method: "GET", path: "/api/v1/versions?limit=0", status: 400, code: "bad_parameter", field: "limit"},
		"B74 page size -1":      {method: "GET", path: "/api/v1/versions?limit=-1", status: 400, code: "bad_parameter", field: "limit"},
		"B74 page size 10^9":    {method: "GET", path: "/api/v1/versions?limit=1000000000", status: 400, code: "bad_parameter", field: "limit"},
		"page size is a word":   {method: "GET", path: "/api/v1/versions?limit=many", status: 400, code: "bad_parameter", field: "limit"},
		"bad cursor":            {method: "GET", path: "/api/v1/versions?cursor=zz", status: 400, code: "bad_parameter", field: "cursor"},
		"bad sequence number":   {method: "GET", path: "/api/v1/events", headers: []string{"Last-Event-ID", "x"}, status: 400, code: "bad_parameter", field: "Last-Event-ID"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w.t = t
			if test.method == "" {
				test.method = "POST"
			}
			if test.path == "" {
				test.path = submit
			}
			a := w.do(test.method, test.path, test.body, test.headers...)
			p := a.problem()
			if a.status != test.status || p.Code != test.code || p.Status != test.status {
				t.Fatalf("status %d code %q, want %d %q: %s", a.status, p.Code, test.status, test.code, a.body)
			}
			if got := a.header.Get("Content-Type"); got != "application/problem+json" {
				t.Error("content type", got)
			}
			if p.ID == "" || p.ID != a.header.Get("X-Request-Id") {
				t.Errorf("request id %q, header %q", p.ID, a.header.Get("X-Request-Id"))
			}
			if test.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != test.field || p.Errors[0].Message == "") {
				t.Errorf("errors %v, want one for %q", p.Errors, test.field)
			}
		})
	}
	w.t = t
	list := must[struct{ Items []any }](w, w.do("GET", "/api/v1/versions?cursor=", nil), 200)
	if len(list.Items) != 0 {
		t.Errorf("%d versions were stored", len(list.Items))
	}
	for _, line := range strings.Split(w.log.String(), "\n") {
		if strings.Contains(line, `"@level":"warn"`) || strings.Contains(line, `"@level":"error"`) {
			t.Error("logged above info:", line)
		}
	}
}

type version struct {
	ID      string
	State   string
	Number  int
	Spec    object
	Attempt struct{ ID, State, Reason string }
}

func TestSubmitGetCancelExplain(t *testing.T) {
	w := newWorld(t)
	v := must[version](w, w.do("POST", submit, submission(limit("1000m"), setSpec("cluster", "Default Cluster"))), 201)
	if v.State != "placing" || v.Number != 1 || v.Spec["limits"].(object)["nvidia.com/gpu"] != "1" || v.Spec["cluster"] != cluster.DefaultID {
		t.Errorf("got %+v", v)
	}
	if got := must[version](w, w.do("GET", "/api/v1/versions/"+v.ID, nil), 200); got.ID != v.ID {
		t.Errorf("got %+v", got)
	}
	for _, q := range []string{"project=default&process=x", "process=x&project=default&state=placing", "limit=1"} {
		if list := must[struct{ Items []version }](w, w.do("GET", "/api/v1/versions?"+q, nil), 200); len(list.Items) != 1 {
			t.Errorf("%s lists %d", q, len(list.Items))
		}
	}
	for range 2 {
		if got := must[version](w, w.do("POST", "/api/v1/versions/"+v.ID+"/cancel", nil), 200); got.State != "cancelled" {
			t.Errorf("got %+v", got)
		}
	}
	e := must[struct {
		Attempts []struct{ Decisions []any }
	}](w, w.do("GET", "/api/v1/versions/"+v.ID+"/explain", nil), 200)
	if len(e.Attempts) != 1 || e.Attempts[0].Decisions == nil {
		t.Errorf("got %+v", e)
	}
}

func TestIdempotency(t *testing.T) {
	w := newWorld(t)
	first := must[version](w, w.do("POST", submit, submission(), "Idempotency-Key", "k"), 201)
	again := must[version](w, w.do("POST", submit, submission(), "Idempotency-Key", "k"), 200)
	if first.ID != again.ID {
		t.Error("another version was made")
	}
	a := w.do("POST", submit, submission(set("name", "y")), "Idempotency-Key", "k")
	if a.status != 422 || a.problem().Code != "idempotency_key_reused" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = w.do("POST", submit+"/bulk", object{"items": []any{submission(), submission(set("name", "y"), set("key", "k"))}})
	if p := a.problem(); a.status != 422 || p.Code != "idempotency_key_reused" || len(p.Errors) != 1 || p.Errors[0].Field != "items[1].key" {
		t.Errorf("%d %s", a.status, a.body)
	}
	bulk := must[struct {
		Items []struct {
			Version version
			Existed bool
		}
	}](w, w.do("POST", submit+"/bulk", object{"items": []any{submission(set("key", "k")), submission(set("key", "n"))}}), 201)
	if !bulk.Items[0].Existed || bulk.Items[0].Version.ID != first.ID || bulk.Items[1].Existed {
		t.Errorf("got %+v", bulk)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	w := newWorld(t)
	d := must[struct{ Outcome, Rule, ClusterName string }](w, w.do("POST", submit+"/dry-run", submission()), 200)
	if d.Outcome != "placed" || d.Rule != "default" {
		t.Errorf("got %+v", d)
	}
	if list := must[struct{ Items []any }](w, w.do("GET", "/api/v1/versions", nil), 200); len(list.Items) != 0 {
		t.Error("a version was stored")
	}
	choices := must[struct{ Items []struct{ ID string } }](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200)
	if len(choices.Items) != 1 || choices.Items[0].ID != cluster.DefaultID {
		t.Errorf("choices %+v", choices)
	}
}

// A client that breaks off while it sends is no fault of the server.
func TestBrokenOffBody(t *testing.T) {
	w := newWorld(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"name\":", submit, w.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for !strings.Contains(w.log.String(), `"code":"malformed_json"`) {
		if time.Now().After(deadline) {
			t.Fatalf("the request is not refused:\n%s", w.log)
		}
		time.Sleep(time.Millisecond) // polling with a deadline: the server tells only its log
	}
	if strings.Contains(w.log.String(), `"@level":"error"`) || strings.Contains(w.log.String(), `"@level":"warn"`) {
		t.Error(w.log)
	}
}

// A body of unknown length is cut off at the cap.
func TestTooLargeWithoutLength(t *testing.T) {
	w := newWorld(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+submit, io.MultiReader(strings.NewReader(`{"name":"`), strings.NewReader(strings.Repeat("x", 2<<20))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.Status)
	}
}
