package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience20 = 20 * time.Second

// rig is a database, a project with a user, clusters behind clients, and a dispatcher.
type rig struct {
	t       *testing.T
	db      *store.DB
	path    string // of the database
	user    string
	project string
	options Options
	d       *Dispatcher
	done    chan error
	clients *clients
	placer  *placer
	logs    *keeper
}

// newRig makes everything but the dispatcher, which start does.
func newRig(t *testing.T) *rig {
	t.Helper()
	ctx := t.Context()
	path, box := filepath.Join(t.TempDir(), "test.db"), secret.NewBox(filepath.Join(t.TempDir(), "keyset.json"))
	db, err := store.Open(ctx, store.Options{URL: "sqlite:" + path, Sealer: box})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(ctx, db); err != nil {
		t.Fatal(err)
	}
	// The seeded cluster has no part in these tests.
	if _, err := db.UpdateCluster(ctx, cluster.DefaultID, nil, func(c *cluster.Cluster) error { c.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, db: db, path: path, clients: &clients{by: map[string]*kube.Client{}}, placer: &placer{}, logs: &keeper{}}
	user, err := db.CreateUser(ctx, auth.User{Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := db.CreateProject(ctx, project.Project{Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	r.user, r.project = user.ID, owner.ID
	level := hclog.Off
	if os.Getenv("NAGELFLUH_TEST_LOG") != "" {
		level = hclog.Debug
	}
	r.options = Options{
		Store: db, Placer: r.placer, Ledger: placement.NewLedger(), Clients: r.clients, Logs: r.logs,
		Logger:       hclog.New(&hclog.LoggerOptions{Level: level, Output: testWriter{t}}),
		Installation: "test", DefaultNamespace: "jobs",
		CreateTimeout: 400 * time.Millisecond, CreateWindow: 800 * time.Millisecond, CreateMargin: 100 * time.Millisecond,
		CallTimeout: time.Second, Scan: 200 * time.Millisecond, Resync: 300 * time.Millisecond,
		UnreachableAfter: 50 * time.Millisecond, Retention: time.Hour, ReasksPerSecond: 1000,
	}
	t.Cleanup(r.stop)
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b))
	return len(b), nil
}

// add adds a cluster that the API serves, and places everything there from now on.
func (r *rig) add(name string, a *api) string {
	r.t.Helper()
	c, err := r.db.CreateCluster(r.t.Context(), cluster.Cluster{
		Name: name, Type: "kubeconfig", ProviderConfig: json.RawMessage("{}"), Active: true, Provisioning: cluster.Provisioned,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if a != nil {
		r.clients.set(c.ID, a.client(c.ID))
	}
	r.placer.to(c.ID)
	return c.ID
}

func (r *rig) start() {
	r.t.Helper()
	r.d = New(r.options)
	r.done = make(chan error, 1)
	go func(d *Dispatcher, done chan error) { done <- d.Run(context.Background()) }(r.d, r.done)
}

func (r *rig) stop() {
	if r.d == nil {
		return
	}
	r.d.Stop()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run: %v", err)
	}
	r.d = nil
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

func (r *rig) submit(n int) []process.Version {
	r.t.Helper()
	in := make([]process.NewVersion, n)
	for i := range in {
		in[i] = process.NewVersion{
			ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "work", SubmittedBy: r.user,
			Spec: process.Spec{Image: "busybox", Command: []string{"true"}}, BodyHash: "x",
		}
	}
	out, _, err := r.db.Submit(r.t.Context(), r.project, in)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func (r *rig) attempt(v process.Version) process.Attempt {
	r.t.Helper()
	v, err := r.db.Version(context.Background(), v.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Attempt
}

// until waits for the attempt to be as wanted.
func (r *rig) until(v process.Version, what string, want func(a process.Attempt) bool) process.Attempt {
	r.t.Helper()
	var last process.Attempt
	r.when(what, func() bool {
		last = r.attempt(v)
		return want(last)
	}, func() any { return last })
	return last
}

func (r *rig) state(v process.Version, s process.State) process.Attempt {
	r.t.Helper()
	return r.until(v, "state "+string(s), func(a process.Attempt) bool { return a.State == s })
}

// when waits for a condition; it is looked at after each change of the database and every few milliseconds.
func (r *rig) when(what string, ok func() bool, show func() any) {
	r.t.Helper()
	woken, cancel := r.db.Hub().Subscribe()
	defer cancel()
	deadline := time.NewTimer(patience20)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-woken:
		case <-tick.C:
		case <-deadline.C:
			if show == nil {
				r.t.Fatalf("waited in vain for: %s", what)
			}
			r.t.Fatalf("waited in vain for: %s\nlast: %+v", what, show())
		}
	}
}

func (r *rig) cancel(v process.Version) {
	r.t.Helper()
	if _, err := r.db.RequestCancel(r.t.Context(), v.ID, r.user, time.Now().UTC().Truncate(time.Microsecond)); err != nil {
		r.t.Fatal(err)
	}
}

// history returns the states that the version's events tell of.
func (r *rig) history(v process.Version) (states []string) {
	r.t.Helper()
	events, err := r.db.Events(r.t.Context(), store.EventFilter{VersionID: v.ID, Kinds: []event.Kind{event.StateChanged}, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		states = append(states, e.State)
	}
	return states
}

func (r *rig) events(kind event.Kind) []event.Event {
	r.t.Helper()
	events, err := r.db.Events(r.t.Context(), store.EventFilter{Kinds: []event.Kind{kind}, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return events
}

// clients hands out clients by cluster.
type clients struct {
	mu sync.Mutex
	by map[string]*kube.Client
}

func (c *clients) set(id string, k *kube.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[id] = k
}

func (c *clients) Get(_ context.Context, id string) (*kube.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.by[id]; k != nil {
		return k, nil
	}
	return nil, errors.New("no provider serves this cluster")
}

// placer decides as the test says; by default everything goes to one cluster.
type placer struct {
	mu     sync.Mutex
	answer func(attemptID string, r placement.Request) placement.Decision
	asked  []string
}

func (p *placer) to(id string) {
	p.set(func(string, placement.Request) placement.Decision {
		return placement.Decision{Outcome: placement.Placed, Rule: placement.ByDefault, ClusterID: id, ReasonCode: "placed", Reason: "Placed by default."}
	})
}

func (p *placer) set(f func(attemptID string, r placement.Request) placement.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

func (p *placer) Decide(_ context.Context, id string, r placement.Request) (placement.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, id)
	d := p.answer(id, r)
	d.ID, d.AttemptID, d.At = newID(), id, time.Now().UTC().Truncate(time.Microsecond)
	return d, nil
}

func (p *placer) asks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// keeper notes what logs it is asked to keep.
type keeper struct {
	mu       sync.Mutex
	ensured  int
	pods     map[string]bool // names of those that were to be followed
	finished map[string]int
	// abandoned are those of clusters that were removed.
	abandoned []string
	fail      error
}

func (k *keeper) Ensure(_ process.Attempt, pods []*corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ensured++
	for _, p := range pods {
		if k.pods == nil {
			k.pods = map[string]bool{}
		}
		k.pods[p.Name] = true
	}
}

func (k *keeper) knows(pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[pod]
}

func (k *keeper) Finish(_ context.Context, a process.Attempt, _ []*corev1.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.finished == nil {
		k.finished = map[string]int{}
	}
	k.finished[a.ID]++
	return k.fail
}

func (k *keeper) Abandon(_ context.Context, a process.Attempt) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned = append(k.abandoned, a.ID)
	return nil
}
