package dispatch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterrow "github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// real is a rig whose cluster has an API server and nodes, reached by the real registry through a proxy that can
// misbehave.
type real struct {
	*rig
	c         *cluster.Cluster
	proxy     *faultproxy.Proxy
	set       *kubernetes.Clientset // past the proxy
	namespace string
}

// connector gives every cluster the same kubeconfig.
type connector []byte

func (c connector) Connect(context.Context, clusterrow.Cluster) (kube.Connection, error) {
	return kube.Connection{Kubeconfig: c}, nil
}

func newReal(t *testing.T, c *cluster.Cluster) *real {
	t.Helper()
	r := &real{rig: newRig(t), c: c, namespace: cluster.Namespace(t, c)}
	r.options.CreateTimeout, r.options.CreateWindow, r.options.CreateMargin = 4*time.Second, 6*time.Second, time.Second
	r.options.CallTimeout, r.options.Resync = 5*time.Second, time.Second
	var err error
	if r.set, err = c.Client(); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if r.proxy, err = faultproxy.New(kubeconfig); err != nil {
		t.Fatal(err)
	}
	registry := kube.NewRegistry(kube.Options{Source: r.db, Connector: connector(r.proxy.Kubeconfig()), DefaultNamespace: "default"})
	t.Cleanup(func() {
		r.stop()
		registry.Close()
		r.proxy.Close()
	})
	row, err := r.db.CreateCluster(t.Context(), clusterrow.Cluster{
		Name: "real", Type: "kubeconfig", ProviderConfig: []byte("{}"), Namespace: r.namespace, Active: true, Provisioning: clusterrow.Provisioned,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.options.Clients = registry
	r.placer.to(row.ID)
	return r
}

func (r *real) run(command ...string) process.Version {
	r.t.Helper()
	out, _, err := r.db.Submit(r.t.Context(), r.project, []process.NewVersion{{
		ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "work", SubmittedBy: r.user, BodyHash: "x",
		Spec: process.Spec{Image: "busybox", Command: command},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

func (r *real) jobs() int {
	r.t.Helper()
	list, err := r.set.BatchV1().Jobs(r.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list.Items)
}

// alive counts pods that have not ended.
func (r *real) alive() (n int) {
	r.t.Helper()
	list, err := r.set.CoreV1().Pods(r.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range list.Items {
		if alive(&list.Items[i]) {
			n++
		}
	}
	return n
}

func (r *real) created(want int) {
	r.t.Helper()
	n, err := r.c.Created("jobs", r.namespace)
	if err != nil || n != want {
		r.t.Errorf("the audit log counts %d Jobs made, want %d (%v)", n, want, err)
	}
}

func TestRealCluster(t *testing.T) {
	clusters := cluster.Start(t, cluster.Options{Private: true, Specs: []cluster.Spec{{Name: "dispatch"}}})
	c := clusters[0]

	t.Run("runs to its end", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		good, bad := r.run("sh", "-c", "echo hello"), r.run("sh", "-c", "exit 3")
		end := r.state(good, process.Succeeded)
		if *end.ExitCode != 0 || end.StartedAt == nil || end.Runs != 1 {
			t.Errorf("end: %+v", end)
		}
		end = r.state(bad, process.Failed)
		if end.ExitCode == nil || *end.ExitCode != 3 {
			t.Errorf("end: %+v", end)
		}
		r.created(2)
	})

	t.Run("B31_1 lost answer", func(t *testing.T) {
		r := newReal(t, c)
		r.proxy.Add(faultproxy.LoseAnswer(), faultproxy.On(http.MethodPost, "/jobs"), faultproxy.Times(1))
		r.start()
		r.state(r.run("sh", "-c", "true"), process.Succeeded)
		r.created(1)
	})

	t.Run("B31_1 lost request", func(t *testing.T) {
		r := newReal(t, c)
		r.proxy.Add(faultproxy.Drop(), faultproxy.On(http.MethodPost, "/jobs"), faultproxy.Times(1))
		r.start()
		r.state(r.run("sh", "-c", "true"), process.Succeeded)
		r.created(1)
	})

	t.Run("B31_2 timeout answered after the Job was made", func(t *testing.T) {
		r := newReal(t, c)
		r.proxy.Add(func(w http.ResponseWriter, q *http.Request, forward faultproxy.Forward) {
			forward(httptest.NewRecorder(), nil)
			faultproxy.Answer(http.StatusGatewayTimeout, nil, "gateway timeout")(w, q, forward)
		}, faultproxy.On(http.MethodPost, "/jobs"), faultproxy.Times(1))
		r.start()
		r.state(r.run("sh", "-c", "true"), process.Succeeded)
		r.created(1)
	})

	t.Run("B31_1 and B51_2 frozen during the create, cancelled, thawed", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		r.state(r.run("sh", "-c", "true"), process.Succeeded) // everything is connected
		r.proxy.Freeze()
		v := r.run("sleep", "3600")
		r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
		r.cancel(v)
		r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == reasonUnreachable })
		r.proxy.Thaw()
		r.state(v, process.Cancelled)
		if n := r.alive(); n != 0 {
			t.Errorf("cancelled, and %d pods run", n)
		}
	})

	t.Run("B43 expired watches and B46 cut ones", func(t *testing.T) {
		r := newReal(t, c)
		undo := r.proxy.Add(faultproxy.Expired(), faultproxy.On(http.MethodGet, "watch=true"))
		r.start()
		v := r.run("sh", "-c", "true")
		r.state(v, process.Succeeded)
		undo()
		v = r.run("sleep", "1")
		r.state(v, process.Running)
		r.proxy.Cut()
		r.state(v, process.Succeeded)
		if got, want := r.history(v), []string{"creating", "queued", "running", "succeeded"}; !slices.Equal(got, want) {
			t.Errorf("states %v, want %v", got, want)
		}
		r.created(2)
	})

	t.Run("B31_5 restart between the answer and the write", func(t *testing.T) {
		r := newReal(t, c)
		var dead atomic.Bool
		dead.Store(true)
		r.options.Store = &flaky{r.db, func(op string) error {
			if op == "update" && dead.Load() {
				return errors.New("the process is dying")
			}
			return nil
		}}
		r.start()
		v := r.run("sh", "-c", "true")
		r.when("the Job", func() bool { return r.jobs() == 1 }, nil)
		r.stop()
		dead.Store(false)
		r.start()
		r.state(v, process.Succeeded)
		r.created(1)
	})

	t.Run("B28 removed behind our back", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		v := r.run("sleep", "3600")
		row := r.state(v, process.Running)
		propagation := metav1.DeletePropagationBackground
		err := r.set.BatchV1().Jobs(r.namespace).Delete(t.Context(), row.JobName, metav1.DeleteOptions{PropagationPolicy: &propagation})
		if err != nil {
			t.Fatal(err)
		}
		r.state(v, process.Unknown)
		r.created(1)
	})

	t.Run("B48 cancel leaves nothing", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		v := r.run("sleep", "3600")
		row := r.state(v, process.Running)
		r.cancel(v)
		r.state(v, process.Cancelled)
		pods, err := r.set.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: job.LabelAttempt + "=" + row.ID})
		if err != nil || len(pods.Items) != 0 || r.jobs() != 0 {
			t.Errorf("after cancelled there are %d pods and %d Jobs (%v)", len(pods.Items), r.jobs(), err)
		}
	})

	t.Run("B45 API server away", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		v := r.run("sleep", "8")
		r.state(v, process.Running)
		if err := c.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		row := r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
		if row.State != process.Running {
			t.Errorf("state %s, want running", row.State)
		}
		during := r.run("sh", "-c", "true")
		r.state(during, process.Creating)
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.state(during, process.Succeeded)
		r.state(v, process.Succeeded)
		if len(r.events(event.Unreachable)) == 0 {
			t.Error("the outage is not among the events")
		}
		r.created(2)
	})
}
