package health

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAPI answers what a monitor asks; paths can be overridden.
type fakeAPI struct {
	*httptest.Server
	mu     sync.Mutex
	codes  map[string]int // path → status instead of an answer
	hang   bool
	cut    bool // the connection breaks
	slow   time.Duration
	date   string // header; empty: the true one
	denies bool   // whatever the account may not do
	hangAt string // one path that hangs
	uid    string // begins those of the namespaces
	again  string // ends that of the namespace of the jobs, which was made anew
	quit   chan struct{}
	nodes  []corev1.Node
	pods   []corev1.Pod
	calls  map[string]int
}

func newFakeAPI(t *testing.T) *fakeAPI {
	a := &fakeAPI{uid: "uid", codes: map[string]int{}, calls: map[string]int{}, quit: make(chan struct{})}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(func() {
		close(a.quit)
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *fakeAPI) set(f func()) { a.mu.Lock(); defer a.mu.Unlock(); f() }

func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.calls[r.URL.Path]++
	code, hang, nodes, pods := a.codes[r.URL.Path], a.hang || a.hangAt == r.URL.Path, a.nodes, a.pods
	cut, slow, date, uid, again, denies := a.cut, a.slow, a.date, a.uid, a.again, a.denies
	a.mu.Unlock()
	if cut {
		panic(http.ErrAbortHandler)
	}
	if slow > 0 {
		select {
		case <-r.Context().Done():
		case <-a.quit:
		case <-time.After(slow):
		}
	}
	if date != "" {
		w.Header().Set("Date", date)
	}
	if hang {
		select {
		case <-r.Context().Done():
		case <-a.quit:
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if code != 0 {
		reason := map[int]string{401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 500: "InternalError"}[code]
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`, reason, code)
		return
	}
	switch {
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, !denies)
	case strings.HasPrefix(r.URL.Path, "/apis/batch/v1/"):
		fmt.Fprint(w, `{"kind":"JobList","apiVersion":"batch/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.URL.Path == "/api/v1/nodes":
		_ = json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: nodes})
	case strings.HasSuffix(r.URL.Path, "/pods"):
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
	case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
		name := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/")
		if name == metav1.NamespaceSystem {
			again = ""
		}
		fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":%q,"uid":"%s-of-%s%s"}}`, name, uid, name, again)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// world is the store, the source of rows and the provider.
type world struct {
	mu       sync.Mutex
	rows     map[string]cluster.Cluster
	apis     map[string]*fakeAPI
	observed map[string]int
	counted  map[string]bool
	live     map[string]int32
	token    string             // of the kubeconfig; empty: t
	broken   error              // what the provider says
	history  []cluster.Observed // as stored, one each time that the health changed
}

func (w *world) Clusters(context.Context) ([]cluster.Cluster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []cluster.Cluster
	for _, c := range w.rows {
		all = append(all, c)
	}
	return all, nil
}

func (w *world) LiveCounts(context.Context) (map[string]int32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.live), nil
}

func (w *world) Cluster(_ context.Context, id string) (cluster.Cluster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there := w.rows[id]
	if !there {
		return c, cluster.ErrNotFound
	}
	return c, nil
}

func (w *world) Observe(_ context.Context, id string, o cluster.Observed) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, there := w.rows[id]
	if !there {
		return cluster.ErrNotFound
	}
	if c.Observed.Health != o.Health {
		w.history = append(w.history, o)
	}
	c.Observed = o.After(c.Observed)
	w.rows[id] = c
	w.observed[id]++
	return nil
}

func (w *world) Connect(_ context.Context, c cluster.Cluster) (kube.Connection, error) {
	w.mu.Lock()
	a, token, broken := w.apis[c.ID], cmp.Or(w.token, "t"), w.broken
	w.mu.Unlock()
	if broken != nil {
		return kube.Connection{}, broken
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return kube.Connection{Kubeconfig: []byte(fmt.Sprintf(`
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]`, a.URL, base64.StdEncoding.EncodeToString(ca), token))}, nil
}

func (w *world) seen(id string) cluster.Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rows[id].Observed
}

func (w *world) writes(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed[id]
}

func start(t *testing.T, ids ...string) (*world, *Monitor) {
	t.Helper()
	return startWith(t, func(*Options) {}, ids...)
}

func startWith(t *testing.T, change func(*Options), ids ...string) (*world, *Monitor) {
	t.Helper()
	w := &world{rows: map[string]cluster.Cluster{}, apis: map[string]*fakeAPI{}, observed: map[string]int{}}
	for _, id := range ids {
		w.rows[id] = cluster.Cluster{ID: id, Active: true, Provisioning: cluster.Provisioned, ConfigRevision: 1}
		w.apis[id] = newFakeAPI(t)
	}
	registry := kube.NewRegistry(kube.Options{Source: w, Connector: w, DefaultNamespace: "jobs"})
	o := Options{
		Store: w, Clients: registry, Interval: 20 * time.Millisecond, CapacityEvery: 20 * time.Millisecond, Timeout: 300 * time.Millisecond,
		CapacityTimeout: 2 * time.Second, SuspectAfter: 500 * time.Millisecond, LostAfter: 2 * time.Second, Scan: 10 * time.Millisecond,
		Counted: func(_ string, attempts map[string]bool) { w.mu.Lock(); defer w.mu.Unlock(); w.counted = attempts },
	}
	change(&o)
	m := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		registry.Close()
	})
	return w, m
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func node(name string, list map[string]string, changes ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = quantities(list)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range changes {
		f(&n)
	}
	return n
}

func quantities(list map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func pod(node string, list map[string]string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: quantities(list)}}}
	for _, f := range changes {
		f(&p)
	}
	return p
}

func TestReadyWithVersionIdentityAndCapacity(t *testing.T) {
	w, m := start(t, "a")
	api := w.apis["a"]
	api.set(func() {
		api.nodes = []corev1.Node{node("n1", map[string]string{"cpu": "4", "nvidia.com/gpu": "8"})}
		api.pods = []corev1.Pod{pod("n1", map[string]string{"cpu": "500m", "nvidia.com/gpu": "2"}, func(p *corev1.Pod) {
			p.Labels = map[string]string{job.LabelAttempt: "attempt-1"}
		})}
	})
	m.Refresh("a")
	want := cluster.ResourceCapacity{NodeMax: 8, NodeFreeMax: 6, Total: 8, Free: 6}
	eventually(t, "ready with capacity", func() bool {
		o := w.seen("a")
		return o.Health == cluster.Ready && o.Capacity != nil && o.Capacity.Resources["nvidia.com/gpu"] == want
	})
	eventually(t, "which cluster it is", func() bool { return w.seen("a").Identity != "" })
	o := w.seen("a")
	if o.Version != "v1.37.2" || o.Identity != "uid-of-kube-system" || o.Reason != "" || o.Unreachable != nil || o.Since.IsZero() {
		t.Errorf("observed %+v", o)
	}
	eventually(t, "the counted attempt is told", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.counted["attempt-1"] })
	before, probes := w.writes("a"), func() int { api.mu.Lock(); defer api.mu.Unlock(); return api.calls["/version"] }
	from := probes()
	eventually(t, "more probes", func() bool { return probes() > from+10 })
	if after := w.writes("a"); after != before {
		t.Errorf("%d writes although nothing changed", after-before)
	}
}

// B13, B53: a hung cluster becomes suspect and then lost; the other one's figures go on.
func TestHungClusterBlocksOnlyItself(t *testing.T) {
	w, _ := start(t, "a", "b")
	eventually(t, "both ready", func() bool { return w.seen("a").Health == cluster.Ready && w.seen("b").Health == cluster.Ready })
	w.apis["a"].set(func() { w.apis["a"].hang = true })
	eventually(t, "suspect", func() bool { return w.seen("a").Health == cluster.Suspect })
	if o := w.seen("a"); o.Unreachable == nil || o.Reason != string(kube.Timeout) || o.Message == "" {
		t.Errorf("observed %+v", o)
	}
	b := w.apis["b"]
	calls := func() int { b.mu.Lock(); defer b.mu.Unlock(); return b.calls["/version"] }
	from := calls()
	eventually(t, "the other is probed on", func() bool { return calls() > from+10 })
	if w.seen("b").Health != cluster.Ready {
		t.Error("the other cluster suffers")
	}
	eventually(t, "lost", func() bool { return w.seen("a").Health == cluster.Lost })
	w.apis["a"].set(func() { w.apis["a"].hang = false })
	eventually(t, "back", func() bool { o := w.seen("a"); return o.Health == cluster.Ready && o.Unreachable == nil })
}

// B15: an address that tells everybody its version is not ready for that.
func TestRejectedCredentialsAreNotReady(t *testing.T) {
	w, _ := start(t, "a")
	w.apis["a"].set(func() { w.apis["a"].codes["/apis/batch/v1/namespaces/jobs/jobs"] = 401 })
	eventually(t, "suspect for its credentials", func() bool {
		o := w.seen("a")
		return o.Health == cluster.Suspect && o.Reason == string(kube.Credentials) && o.Unreachable == nil
	})
}

func TestServerErrorsDegradeFirst(t *testing.T) {
	w, _ := start(t, "a")
	eventually(t, "ready", func() bool { return w.seen("a").Health == cluster.Ready })
	w.apis["a"].set(func() { w.apis["a"].codes["/version"] = 500 })
	eventually(t, "suspect in the end", func() bool { o := w.seen("a"); return o.Health == cluster.Suspect && o.Reason == string(kube.Server) })
	if o := w.seen("a"); o.Unreachable != nil {
		t.Error("an API server that answers counts as unreachable")
	}
}

// B16: an account that may not ask for the version is no stranger's answer, and works.
func TestB16VersionIsNotForEveryone(t *testing.T) {
	w, _ := start(t, "a")
	eventually(t, "ready", func() bool { return w.seen("a").Health == cluster.Ready })
	w.apis["a"].set(func() { w.apis["a"].codes["/version"] = 403 })
	eventually(t, "ready without a version", func() bool { o := w.seen("a"); return o.Health == cluster.Ready && o.Version == "" })
}

// B16: an account that sees no nodes and no kube-system works; what it cannot see is unknown.
func TestFewRights(t *testing.T) {
	w, _ := start(t, "a")
	w.apis["a"].set(func() {
		w.apis["a"].codes["/api/v1/nodes"] = 403
		w.apis["a"].codes["/api/v1/namespaces/kube-system"] = 403
	})
	w.mu.Lock()
	row := w.rows["a"]
	row.ID = "fresh"
	w.apis["fresh"] = w.apis["a"]
	w.rows["fresh"] = row
	w.mu.Unlock()
	eventually(t, "ready", func() bool { o := w.seen("fresh"); return o.Health == cluster.Ready && o.Identity != "" })
	o := w.seen("fresh")
	if o.Capacity != nil || o.Identity != "uid-of-jobs" || o.Condition(cluster.CapacityKnown).Status != cluster.False {
		t.Errorf("observed %+v", o)
	}
}

func TestRetiredClusterIsLeftAloneOnceNothingRunsThere(t *testing.T) {
	w, _ := start(t, "a")
	eventually(t, "ready", func() bool { return w.seen("a").Health == cluster.Ready })
	w.mu.Lock()
	row := w.rows["a"]
	row.Active = false
	w.rows["a"] = row
	w.live = map[string]int32{"a": 1}
	w.mu.Unlock()
	api := w.apis["a"]
	calls := func() int { api.mu.Lock(); defer api.mu.Unlock(); return api.calls["/version"] }
	from := calls()
	eventually(t, "it is looked at while something runs there", func() bool { return calls() > from+10 })
	w.mu.Lock()
	w.live = nil
	w.mu.Unlock()
	eventually(t, "no more probes", func() bool {
		from := calls()
		time.Sleep(100 * time.Millisecond) // five intervals: that nothing comes has no event to wait for
		return calls() == from
	})
}
