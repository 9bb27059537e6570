package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The report of the API is the report of the engine, field by field.
func TestReportIsTheSameInTheAPI(t *testing.T) {
	at, ms := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1.5
	r := cluster.Report{
		Class: "permissions", Message: "m", Remedy: "r", Fields: []cluster.ReportField{{Field: "f", Message: "m"}}, Warnings: []string{"w"}, Contexts: []string{"c"},
		Server: "https://x", Namespace: "n", Version: "v1", Identity: "i", SameAs: []string{"s"}, HTTPStatus: 403, User: "u", ExpiresAt: &at,
		LatencyMS: &ms, SkewSeconds: &ms, Phases: []cluster.Phase{{Name: "tls", OK: true, TookMS: 1, Message: "m"}},
		Permissions: []cluster.Permission{{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "n", Required: true, Allowed: "no", Lost: "l"}},
		Kueue:       &cluster.KueueReport{Installed: true, Message: "m", Queues: []cluster.QueueReport{{Name: "q", ClusterQueue: "c", Active: true, Message: "m"}}},
		Capacity:    &cluster.Capacity{ObservedAt: at, Nodes: 1, Resources: map[string]cluster.ResourceCapacity{"cpu": {NodeMax: 1, NodeFreeMax: 2, Total: 3, Free: 4}}},
		TestedAt:    at, TookMS: 2,
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	var contract gen.ConnectionReport
	if err := strict.Decode(&contract); err != nil {
		t.Errorf("the contract lacks a field: %v", err)
	}
	back, err := json.Marshal(contract)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	_, _ = json.Unmarshal(raw, &want), json.Unmarshal(back, &got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConnectionTestOfAForm(t *testing.T) {
	w := newWorld(t)
	path := clusters + "/test-connection"
	body := object{"type": "fake", "provider_config": object{"token": "geheim"}, "namespace": "team-a", "queue_name": "q"}
	r := must[cluster.Report](w, w.do("POST", path, body), 200)
	if !r.OK || w.fake().tested[0].Namespace != "team-a" || w.fake().tested[0].QueueName != "q" {
		t.Errorf("%+v of %+v", r, w.fake().tested)
	}
	w.fake().finds(dead)
	if r := must[cluster.Report](w, w.do("POST", path, body), 200); r.OK || r.Class != "timeout" || r.Remedy == "" {
		t.Errorf("a failed test is an answer like any other: %+v", r)
	}
	before := w.fake().tests()
	r = must[cluster.Report](w, w.do("POST", path, object{"type": "fake"}), 200)
	if r.OK || r.Class != cluster.ClassConfig || len(r.Fields) != 1 || r.Fields[0].Field != "provider_config.token" || w.fake().tests() != before {
		t.Errorf("a config that the provider refuses: %+v", r)
	}
	if a := w.do("POST", path, object{"type": "nobody"}); a.status != 422 || a.problem().Code != "unknown_cluster_type" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("POST", path, object{"type": "fake", "namespace": "No_Name"}); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if list := must[struct{ Items []object }](w, w.do("GET", clusters, nil), 200); len(list.Items) != 1 {
		t.Errorf("a test stored something: %v", list.Items)
	}
	if strings.Contains(w.log.String(), "geheim") {
		t.Error("the log holds the secret")
	}
}

func TestConnectionTestOfARow(t *testing.T) {
	w := newWorld(t)
	w.added("c")
	last := func() *cluster.Report {
		return must[struct {
			Last *cluster.Report `json:"last_test"`
		}](w, w.do("GET", clusters+"/c", nil), 200).Last
	}
	if l := last(); l == nil || !l.OK {
		t.Errorf("the test of its creation is its last one: %+v", l)
	}
	w.fake().finds(dead)
	if r := must[cluster.Report](w, w.do("POST", clusters+"/c/test-connection", object{"provider_config": object{"token": "other"}}), 200); r.OK {
		t.Errorf("%+v", r)
	}
	if n := len(w.fake().tested); string(w.fake().tested[n-1].ProviderConfig) != `{"token":"other"}` {
		t.Errorf("tested %s", w.fake().tested[n-1].ProviderConfig)
	}
	if l := last(); !l.OK {
		t.Errorf("a test of something else is not the row's: %+v", l)
	}
	must[cluster.Report](w, w.do("POST", clusters+"/c/test-connection", object{}), 200)
	if l := last(); l.OK || l.Class != "timeout" {
		t.Errorf("got %+v", l)
	}
	if a := w.do("POST", clusters+"/c/test-connection", object{"type": "same-as-backend"}); a.status != 422 {
		t.Errorf("another type needs its own config: %d %s", a.status, a.body)
	}
	if a := w.do("POST", clusters+"/moon/test-connection", object{}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A config that was not tested has no test.
	if a := w.do("PATCH", clusters+"/c?connection_test=skip", object{"provider_config": object{"token": "new"}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if l := last(); l != nil {
		t.Errorf("the report is of another config: %+v", l)
	}
}

// The browser leaves the page: nothing of the test goes on.
func TestB13LeavingCancelsTheProbe(t *testing.T) {
	w := newWorld(t)
	w.fake().hang = make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+clusters+"/test-connection", strings.NewReader(`{"type":"fake","provider_config":{"token":"t"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	for w.fake().tests() == 0 {
		if t.Context().Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case <-w.fake().hang:
	case <-time.After(20 * time.Second):
		t.Fatal("the test goes on although nobody waits for it")
	}
}

// What fails its test is not stored, and a broken new config leaves the old one in use (B52).
func TestB52FailedTestStoresNothing(t *testing.T) {
	w := newWorld(t)
	w.fake().finds(dead)
	a := w.do("POST", clusters, fakeCluster("c"))
	p := a.problem()
	if a.status != 422 || p.Code != "connection_test_failed" || len(p.Errors) != 1 || p.Errors[0].Field != "provider_config" || p.Details["report"] == nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if !strings.Contains(p.Detail, dead.Message) || !strings.Contains(p.Detail, dead.Remedy) {
		t.Errorf("detail %q", p.Detail)
	}
	if a := w.do("GET", clusters+"/c", nil); a.status != 404 {
		t.Errorf("a half-made row: %d", a.status)
	}
	skipped := w.do("POST", clusters+"?connection_test=skip", fakeCluster("c"))
	if skipped.status != 201 || !strings.Contains(string(skipped.body), "was not tested") {
		t.Fatalf("%d %s", skipped.status, skipped.body)
	}
	tag := skipped.header.Get("ETag")
	before := w.fake().tests()
	if a := w.do("PATCH", clusters+"/c", object{"sort_order": 3}, "If-Match", tag); a.status != 200 || w.fake().tests() != before {
		t.Errorf("a change of something else tests nothing: %d %s", a.status, a.body)
	}
	for _, body := range []object{{"provider_config": object{"token": "broken"}}, {"type": "fake"}} {
		if a := w.do("PATCH", clusters+"/c", body); a.status != 422 || a.problem().Code != "connection_test_failed" {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}
	all, err := w.db.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == "c" && (string(c.ProviderConfig) != `{"token":"geheim"}` || c.ConfigRevision != 1) {
			t.Errorf("stored: %s", c.ProviderConfig)
		}
	}
}

// What the policy refuses is refused also when the test is skipped, and names its fields.
func TestB03B05PolicyHoldsWithoutATest(t *testing.T) {
	w := newWorld(t)
	refused := cluster.Report{
		Class: cluster.ClassPolicy, Message: "The kubeconfig is refused.", Remedy: "kubectl config view --flatten --minify",
		Fields: []cluster.ReportField{{Field: "provider_config.kubeconfig", Message: "certificate-authority is a path"}, {Field: "provider_config.kubeconfig", Message: "exec runs a command"}},
	}
	w.fake().check = refused
	w.fake().finds(refused)
	for _, query := range []string{"", "?connection_test=skip", "?connection_test=run", "?connection_test=skip&confirm_identity=true"} {
		a := w.do("POST", clusters+query, fakeCluster("c"))
		if p := a.problem(); a.status != 422 || p.Code != "connection_test_failed" || len(p.Errors) != 2 || !strings.Contains(p.Detail, "--flatten") {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := w.do("GET", clusters+"/c", nil); a.status != 404 {
		t.Errorf("a half-made row: %d", a.status)
	}
	if a := w.do("POST", clusters+"?connection_test=never", fakeCluster("c")); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The warning about a loopback address stands in the answer to what was saved.
func TestB07WarningsOfTheTestAreSaid(t *testing.T) {
	w := newWorld(t)
	r := good("")
	r.Warnings = []string{"https://127.0.0.1:6443 means the server machine itself"}
	w.fake().finds(r)
	a := w.do("POST", clusters, fakeCluster("c"))
	out := must[struct{ Warnings []string }](w, a, 201)
	if len(out.Warnings) != 2 || !strings.Contains(out.Warnings[1], "server machine itself") {
		t.Errorf("got %q", out.Warnings)
	}
}

func TestIdentityNeedsConfirmation(t *testing.T) {
	w := newWorld(t)
	w.fake().finds(good("uid-1"))
	c := w.added("c")
	edit := object{"provider_config": object{"token": "new"}}
	if a := w.do("PATCH", clusters+"/c", edit); a.status != 200 {
		t.Fatalf("the same cluster: %d %s", a.status, a.body)
	}
	// The same cluster a second time.
	if a := w.do("POST", clusters, fakeCluster("twin")); a.status != 409 || a.problem().Code != "identity_in_use" || !strings.Contains(a.problem().Detail, `"c"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	twin := w.do("POST", clusters+"?confirm_identity=true", fakeCluster("twin"))
	if twin.status != 201 || !strings.Contains(string(twin.body), "same cluster as") {
		t.Errorf("%d %s", twin.status, twin.body)
	}
	if a := w.do("PATCH", clusters+"/twin", edit); a.status != 200 {
		t.Errorf("it was confirmed once: %d %s", a.status, a.body)
	}
	// Another cluster under an old row.
	w.fake().finds(good("uid-2"))
	if a := w.do("PATCH", clusters+"/c", edit); a.status != 409 || a.problem().Code != "identity_changed" || !strings.Contains(a.problem().Detail, "confirm") {
		t.Errorf("%d %s", a.status, a.body)
	}
	v := must[version](w, w.do("POST", submit, submission()), 201)
	attempt := w.place(v, c.ID, process.Running)
	for _, query := range []string{"", "?confirm_identity=true"} {
		a := w.do("PATCH", clusters+"/c"+query, object{"provider_config": object{"token": "newer"}})
		if p := a.problem(); a.status != 409 || p.Details["live_attempts"] != float64(1) {
			t.Errorf("live attempts are on the old cluster: %d %s", a.status, a.body)
		}
	}
	if a := w.do("PATCH", clusters+"/c?confirm_identity=true&connection_test=skip", object{"provider_config": object{"token": "newer"}}); a.status != 409 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if _, err := w.db.UpdateAttempt(t.Context(), attempt, func(a *process.Attempt) ([]event.Event, error) {
		a.State = process.Failed
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	must[object](w, w.do("PATCH", clusters+"/c?confirm_identity=true", object{"provider_config": object{"token": "newer"}}), 200)
	if now, err := w.db.Cluster(t.Context(), c.ID); err != nil || now.Observed.Identity != "uid-2" {
		t.Errorf("identity %q, %v", now.Observed.Identity, err)
	}
	// One that does not tell is never taken for the same.
	w.fake().finds(good(""))
	a := w.do("PATCH", clusters+"/c", edit)
	if out := must[struct{ Warnings []string }](w, a, 200); !strings.Contains(strings.Join(out.Warnings, " "), "nobody can say whether it is the same one") {
		t.Errorf("got %q", out.Warnings)
	}
}

// Removing by force, as far as the API goes; what it does to Jobs is tested with the dispatcher.
func TestB54RemovalInTheAPI(t *testing.T) {
	w := newWorld(t)
	c := w.added("c")
	states := map[process.State]int{process.Running: 3, process.Queued: 2}
	var attempts []string
	for state, n := range states {
		for range n {
			attempts = append(attempts, w.place(must[version](w, w.do("POST", submit, submission()), 201), c.ID, state))
		}
	}
	a := w.do("DELETE", clusters+"/c", nil)
	p := a.problem()
	if want := (object{"running": 3.0, "queued": 2.0}); a.status != 409 || p.Code != "cluster_in_use" || p.Details["live_attempts"] != 5.0 || cmp.Diff(want, p.Details["live_states"]) != "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// Retired instead: hidden from selection, and all goes on.
	must[object](w, w.do("PATCH", clusters+"/c", object{"active": false}), 200)
	for _, choice := range must[struct{ Items []struct{ ID string } }](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200).Items {
		if choice.ID == c.ID {
			t.Error("a retired cluster is among the choices")
		}
	}
	out := must[struct {
		Reached  bool
		Attempts []struct {
			State string
			May   bool `json:"may_still_run"`
		}
	}](w, w.do("DELETE", clusters+"/c?force=true", nil), 200)
	if len(out.Attempts) != 5 || out.Attempts[0].State != "unknown" || !out.Attempts[0].May {
		t.Errorf("got %+v", out)
	}
	if a := w.do("GET", clusters+"/c", nil); a.status != 404 {
		t.Errorf("%d", a.status)
	}
	again := w.added("c")
	view := must[struct {
		Active int `json:"active_attempts"`
	}](w, w.do("GET", clusters+"/c", nil), 200)
	if again.ID == c.ID || view.Active != 0 {
		t.Errorf("the new cluster of that name inherits: %+v", view)
	}
	old, err := w.db.Attempt(t.Context(), attempts[0])
	if err != nil || old.ClusterID != c.ID {
		t.Errorf("history: %+v, %v", old, err)
	}
}
