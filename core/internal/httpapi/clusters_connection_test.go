package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/connection"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// fakeTester finds what it is told to. Its zero value finds every connection good.
type fakeTester struct {
	mu     sync.Mutex
	report cluster.Report // of Test; Message empty: ok
	check  cluster.Report // of Check
	tested []cluster.Cluster
	hang   chan struct{} // closed when a test that never ends has been cancelled
}

func (f *fakeTester) finds(r cluster.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report = r
}

func (f *fakeTester) tests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tested)
}

func (f *fakeTester) Test(ctx context.Context, c cluster.Cluster) cluster.Report {
	f.mu.Lock()
	f.tested = append(f.tested, c)
	r, hang := f.report, f.hang
	f.mu.Unlock()
	if hang != nil {
		<-ctx.Done()
		close(hang)
		return cluster.Report{Message: "cancelled"}
	}
	if r.Message == "" {
		r = good("")
	}
	return r
}

func (f *fakeTester) Check(context.Context, cluster.Cluster) cluster.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check.Message == "" {
		return cluster.Report{OK: true, Message: "allowed"}
	}
	return f.check
}

func good(identity string) cluster.Report {
	return cluster.Report{
		OK: true, Message: "Jobs can run.", Identity: identity, Phases: []cluster.Phase{{Name: "provider", OK: true}}, TestedAt: time.Now().UTC(),
	}
}

var dead = cluster.Report{
	Class: "timeout", Message: "The cluster did not answer in phase connect.", Remedy: "Look at the firewall.",
	Phases: []cluster.Phase{{Name: "connect", Message: "no answer"}},
}

// Test and Check make the world the tester, so that a test may put another one in its place.
func (w *world) Test(ctx context.Context, c cluster.Cluster) cluster.Report {
	return w.tester.Test(ctx, c)
}

func (w *world) Check(ctx context.Context, c cluster.Cluster) cluster.Report {
	return w.tester.Check(ctx, c)
}

func (w *world) fake() *fakeTester {
	w.t.Helper()
	f, ok := w.tester.(*fakeTester)
	if !ok {
		w.t.Fatal("the tester is not the fake one")
	}
	return f
}

// fakeRemover ends attempts in the database alone.
type fakeRemover struct{ db *store.DB }

func (f fakeRemover) Abandon(ctx context.Context, c cluster.Cluster) (out cluster.Abandonment, err error) {
	live, err := f.db.LiveAttempts(ctx, c.ID)
	for _, a := range live {
		next, err := f.db.UpdateAttempt(ctx, a.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.Reason = process.Unknown, "removed"
			return nil, nil
		})
		if err != nil {
			return out, err
		}
		out.Attempts = append(out.Attempts, cluster.AbandonedAttempt{AttemptID: a.ID, VersionID: a.VersionID, Was: string(a.State), State: string(next.State), MayStillRun: true})
	}
	return out, err
}

func (fakeRemover) Readmit(string) {}

const clusters = "/api/v1/clusters"

// added adds a cluster of the fake type.
func (w *world) added(name string) (c struct {
	ID   string
	Name string
}) {
	w.t.Helper()
	a := w.do("POST", clusters, fakeCluster(name))
	if a.status != 201 {
		w.t.Fatalf("%d %s", a.status, a.body)
	}
	_ = json.Unmarshal(a.body, &c)
	return c
}

func fakeCluster(name string) object {
	return object{"name": name, "type": "fake", "provider_config": object{"token": "geheim"}}
}

// place pins the version's attempt to the cluster.
func (w *world) place(v version, clusterID string, state process.State) string {
	w.t.Helper()
	stored, err := w.db.Version(w.t.Context(), v.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, next := range []process.State{process.Creating, state} {
		if _, err := w.db.UpdateAttempt(w.t.Context(), stored.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ClusterID, a.Namespace, a.JobName = next, clusterID, "jobs", "job"
			return nil, nil
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	return stored.Attempt.ID
}

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

func TestClusterNameAndRuntime(t *testing.T) {
	w := newWorld(t)
	body := fakeCluster("  spaced ")
	body["max_runtime_seconds"] = nil
	c := must[struct{ Name string }](w, w.do("POST", clusters, body), 201)
	if c.Name != "spaced" {
		t.Errorf("name %q", c.Name)
	}
	type limited struct {
		Max *int64 `json:"max_runtime_seconds"`
	}
	for _, bad := range []any{0, -1, 1.5, "60", 1 << 40} {
		if a := w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": bad}); a.status != 422 {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	if a := w.do("PATCH", clusters+"/spaced", object{"name": "   "}); a.status != 422 || a.problem().Errors[0].Field != "name" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": 60}), 200); got.Max == nil || *got.Max != 60 {
		t.Errorf("got %+v", got)
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"sort_order": 1}), 200); got.Max == nil {
		t.Error("what is not sent is not touched")
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": nil}), 200); got.Max != nil {
		t.Errorf("null takes the limit away: %+v", got)
	}
}

func TestCordon(t *testing.T) {
	w := newWorld(t)
	w.added("c")
	type cordoned struct {
		Cordon *struct {
			By, Reason string
			At         time.Time
		}
	}
	first := must[cordoned](w, w.do("PUT", clusters+"/c/cordon", object{"reason": "disks"}), 200)
	if first.Cordon == nil || first.Cordon.Reason != "disks" || first.Cordon.By == "" || first.Cordon.At.IsZero() {
		t.Fatalf("got %+v", first)
	}
	if again := must[cordoned](w, w.do("PUT", clusters+"/c/cordon", object{"reason": "fans"}), 200); again.Cordon.Reason != "fans" || !again.Cordon.At.Equal(first.Cordon.At) {
		t.Errorf("it holds since the first time: %+v", again)
	}
	choices := must[struct{ Items []struct{ Name string } }](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200)
	for _, c := range choices.Items {
		if c.Name == "c" {
			t.Error("a cordoned cluster is among the choices")
		}
	}
	if c := must[cordoned](w, w.do("DELETE", clusters+"/c/cordon", nil), 200); c.Cordon != nil {
		t.Errorf("got %+v", c)
	}
	if a := w.do("PUT", clusters+"/moon/cordon", object{}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	c := w.added("c")
	if a := w.do("POST", clusters+"/c/take-over", nil); a.problem().Code != "invalid" {
		t.Errorf("nothing to take over: %d %s", a.status, a.body)
	}
	held := &cluster.ForeignLease{Namespace: "jobs", Holder: "stranger", Writer: "w", Message: "It is held.", Since: time.Now().UTC()}
	if _, err := w.db.UpdateCluster(t.Context(), c.ID, nil, func(c *cluster.Cluster) error { c.Lease = held; return nil }); err != nil {
		t.Fatal(err)
	}
	type leased struct {
		Lease struct {
			Holder, Message string
			ConfirmedBy     string    `json:"confirmed_by"`
			ConfirmedAt     time.Time `json:"confirmed_at"`
		}
	}
	if got := must[leased](w, w.do("GET", clusters+"/c", nil), 200).Lease; got.Holder != "stranger" || got.Message != "It is held." || got.ConfirmedBy != "" {
		t.Errorf("before: %+v", got)
	}
	first := must[leased](w, w.do("POST", clusters+"/c/take-over", nil), 200).Lease
	if first.ConfirmedBy == "" || first.ConfirmedAt.IsZero() {
		t.Errorf("after: %+v", first)
	}
	if again := must[leased](w, w.do("POST", clusters+"/c/take-over", nil), 200).Lease; again != first {
		t.Errorf("confirmed twice: %+v", again)
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

// listener counts connections and answers nothing.
type counting struct {
	net.Listener
	n atomic.Int64
}

func listenCounting(t *testing.T) *counting {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.n.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return c
}

// connector leads every cluster to an address of its own and counts how often it is asked.
type connector struct {
	address func(name string) string
	n       atomic.Int64
}

func (c *connector) Connect(_ context.Context, row cluster.Cluster) (kube.Connection, error) {
	c.n.Add(1)
	return kube.Connection{Kubeconfig: fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s"}}]
users: [{name: u, user: {token: t}}]
`, c.address(row.Name))}, nil
}

// Lists and details are answered from what is stored, however many clusters do not answer.
func TestB13ListsOf200ClustersMakeNoCall(t *testing.T) {
	w := newWorld(t)
	alive := listenCounting(t)
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	c := &connector{address: func(name string) string {
		if strings.HasPrefix(name, "dead") {
			return closed.Addr().String()
		}
		return alive.Addr().String()
	}}
	registry := kube.NewRegistry(kube.Options{Source: w.db, Connector: c})
	defer registry.Close()
	w.tester = connection.New(connection.Options{Connector: c, Clients: registry})
	w.twoHundred()

	began := time.Now()
	for range 5 {
		list := must[struct{ Items []struct{ ID string } }](w, w.do("GET", clusters, nil), 200)
		if len(list.Items) != 201 {
			t.Fatalf("%d clusters", len(list.Items))
		}
		for _, id := range []string{list.Items[0].ID, "alive-001", "dead-001", "dead-049"} {
			must[object](w, w.do("GET", clusters+"/"+id, nil), 200)
		}
		must[object](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200)
		must[object](w, w.do("GET", "/api/v1/versions?project=default", nil), 200)
		must[object](w, w.do("GET", "/readyz", nil), 200)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("40 answers took %s", took)
	}
	if calls, dials := c.n.Load(), alive.n.Load(); calls != 0 || dials != 0 {
		t.Errorf("%d calls of the provider, %d connections", calls, dials)
	}
	// The counters do count.
	if r := must[cluster.Report](w, w.do("POST", clusters+"/alive-001/test-connection", object{}), 200); r.OK {
		t.Errorf("got %+v", r)
	}
	if c.n.Load() == 0 || alive.n.Load() == 0 {
		t.Errorf("a test made %d calls of the provider and %d connections", c.n.Load(), alive.n.Load())
	}
}

// twoHundred adds 200 clusters of which 50 are lost.
func (w *world) twoHundred() {
	w.t.Helper()
	for i := range 200 {
		name, o := fmt.Sprintf("alive-%03d", i), cluster.Observed{Health: cluster.Ready, Version: "v1.37.2", CheckedAt: time.Now().UTC()}
		if i >= 150 {
			at := time.Now().Add(-time.Hour).UTC()
			name, o = fmt.Sprintf("dead-%03d", i-150), cluster.Observed{Health: cluster.Lost, Reason: "refused", Message: "no answer", Unreachable: &at}
		}
		c, err := w.db.CreateCluster(w.t.Context(), cluster.Cluster{
			Name: name, Type: "fake", ProviderConfig: json.RawMessage(`{"token":"t"}`), Active: true, Labels: map[string]string{"zone": "a"},
		})
		if err == nil {
			err = w.db.Observe(w.t.Context(), c.ID, o)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}
