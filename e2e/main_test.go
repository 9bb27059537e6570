// Package e2e tests the built binaries together: the server, its command line and the plugins, on real clusters.
package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/watch"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

var (
	clusters *stack.Clusters // main, and gpu with 8 GPUs
	root     string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if root, err = stack.Root(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, need := range []string{"bin/devcluster", "bin/nagelfluh"} {
		if _, err := os.Stat(filepath.Join(root, need)); err == nil {
			continue
		}
		if os.Getenv("NAGELFLUH_REQUIRE_DEVCLUSTER") == "1" {
			fmt.Fprintf(os.Stderr, "%s is missing: run `make build devcluster`\n", need)
			return 1
		}
		fmt.Printf("SKIP: the end-to-end tests need %s: run `make build devcluster`\n", need)
		return 0
	}
	dir, err := os.MkdirTemp("", "nagelfluh-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	clusters, err = stack.StartClusters(context.Background(), dir, []string{"main", "gpu"}, nil,
		"--name", "main", "--name", "gpu", "--gpus", "8")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := clusters.Stop(20 * time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// world is one server with a namespace of its own at both clusters.
type world struct {
	*stack.Server
	t         *testing.T
	ctx       context.Context
	namespace string
	o         stack.ServerOptions
}

// newWorld starts a server whose default cluster is main; the cluster gpu is added. Change the options with edit.
func newWorld(t *testing.T, edit func(*stack.ServerOptions)) *world {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, ctx: t.Context(), namespace: strings.Trim(name[:min(len(name), 50)], "-")}
	w.o = stack.ServerOptions{
		Dir: t.TempDir(), Kubeconfig: clusters.Kubeconfig("main"),
		Env: []string{"K8S_NAMESPACE=" + w.namespace},
	}
	if edit != nil {
		edit(&w.o)
	}
	for _, c := range []string{"main", "gpu"} {
		w.makeNamespace(c)
	}
	w.start()
	t.Cleanup(func() {
		if err := w.Stop(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	w.addGPU()
	return w
}

func (w *world) start() {
	w.t.Helper()
	s, err := stack.StartServer(w.ctx, w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Server = s
}

// restart starts the server anew on the same data, at the same address when it was fixed.
func (w *world) restart() { w.start() }

func (w *world) addGPU() {
	w.t.Helper()
	if _, err := w.CLI(w.ctx, "clusters", "add", "gpu", "--type", "kubeconfig", "--kubeconfig", clusters.Kubeconfig("gpu")); err != nil {
		w.t.Fatal(err)
	}
	w.until("both clusters are ready", time.Minute, func() (bool, error) {
		var list struct {
			Items []struct {
				Name     string
				Observed struct {
					Health, Message string
					Capacity        *struct{}
				}
			}
		}
		if err := w.Get(w.ctx, "/clusters", &list); err != nil {
			return false, err
		}
		for _, c := range list.Items {
			if c.Observed.Health != "ready" || c.Observed.Capacity == nil {
				return false, fmt.Errorf("%s is %s %s", c.Name, c.Observed.Health, c.Observed.Message)
			}
		}
		return len(list.Items) == 2, nil
	})
}

func (w *world) makeNamespace(cluster string) {
	w.t.Helper()
	c := w.client(cluster)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if _, err := c.CoreV1().Namespaces().Create(w.ctx, ns, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) client(cluster string) *kubernetes.Clientset {
	w.t.Helper()
	c, err := clusters.Client(cluster)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) until(what string, limit time.Duration, check func() (bool, error)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	if err := stack.Until(ctx, what, check); err != nil {
		w.t.Fatal(err)
	}
}

// version is what the tests read of one.
type version struct {
	ID          string
	ProcessName string `json:"process_name"`
	Key         string
	State       string
	Attempt     struct {
		ID          string
		Number      int
		ClusterName string `json:"cluster_name"`
		Reason      string
		ReasonCode  string `json:"reason_code"`
		ExitCode    *int   `json:"exit_code"`
		JobUID      string `json:"job_uid"`
	}
}

func (v version) ended() bool {
	return v.State == "succeeded" || v.State == "failed" || v.State == "cancelled" || v.State == "unknown"
}

// submission is the body of one submission.
func submission(name string, gpus int, command ...string) map[string]any {
	spec := map[string]any{"image": "busybox", "command": command}
	if gpus > 0 {
		spec["limits"] = map[string]string{"nvidia.com/gpu": fmt.Sprint(gpus)}
	}
	return map[string]any{"name": name, "spec": spec}
}

// submit sends one submission and must succeed.
func (w *world) submit(body map[string]any) version {
	w.t.Helper()
	r, err := w.Do(w.ctx, http.MethodPost, "/projects/default/processes", body)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.Status != http.StatusCreated {
		w.t.Fatalf("submit %v: status %d: %s", body["name"], r.Status, r.Body)
	}
	var v version
	if err := json.Unmarshal(r.Body, &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// versions lists all versions of the default project.
func (w *world) versions() ([]version, error) {
	var all []version
	cursor := ""
	for {
		var page struct {
			Items      []version
			NextCursor string `json:"next_cursor"`
		}
		if err := w.Get(w.ctx, "/versions?project=default&limit=200&cursor="+cursor, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all, nil
		}
		cursor = page.NextCursor
	}
}

func (w *world) get(id string) version {
	w.t.Helper()
	var v version
	if err := w.Get(w.ctx, "/versions/"+id, &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// allEnded waits until every version has ended.
func (w *world) allEnded(limit time.Duration) []version {
	w.t.Helper()
	var all []version
	w.until("every version has ended", limit, func() (bool, error) {
		var err error
		if all, err = w.versions(); err != nil {
			return false, err
		}
		open := 0
		var one version
		for _, v := range all {
			if !v.ended() {
				open++
				one = v
			}
		}
		if open > 0 {
			return false, fmt.Errorf("%d of %d go on, one is %s in %s: %s", open, len(all), one.ProcessName, one.State, one.Attempt.Reason)
		}
		return true, nil
	})
	return all
}

// ledger counts the Jobs that ever existed, by version, as the clusters' own watches tell.
type ledger struct {
	mu   sync.Mutex
	uids map[string]map[string]string // version, then UID: cluster
}

// watchJobs starts counting. The watches end with the test.
func (w *world) watchJobs() *ledger {
	w.t.Helper()
	l := &ledger{uids: map[string]map[string]string{}}
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	w.t.Cleanup(func() { cancel(); wg.Wait() })
	for _, name := range []string{"main", "gpu"} {
		jobs := w.client(name).BatchV1().Jobs(w.namespace)
		list, err := jobs.List(ctx, metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		// The API server ends the watch of a client that falls behind; the next one goes on from the last event seen.
		source := &cache.ListWatch{WatchFuncWithContext: jobs.Watch}
		retried, err := watch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, source)
		if err != nil {
			w.t.Fatal(err)
		}
		wg.Go(func() {
			for e := range retried.ResultChan() {
				if o, ok := e.Object.(metav1.Object); ok {
					l.add(o.GetLabels()["nagelfluh.io/version"], string(o.GetUID()), name)
				} else if ctx.Err() == nil {
					w.t.Errorf("the count of Jobs on cluster %s has a gap: %v", name, apierrors.FromObject(e.Object))
				}
			}
			if ctx.Err() == nil {
				w.t.Errorf("the counting watch of cluster %s ended", name)
			}
		})
	}
	return l
}

func (l *ledger) add(version, uid, cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uids[version] == nil {
		l.uids[version] = map[string]string{}
	}
	l.uids[version][uid] = cluster
}

// of returns the clusters on which a version ever had a Job, one entry a Job.
func (l *ledger) of(version string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, cluster := range l.uids[version] {
		out = append(out, cluster)
	}
	return out
}

func (l *ledger) versions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.uids)
}
