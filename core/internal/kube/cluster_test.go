package kube

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	devcluster "github.com/nagelfluh/nagelfluh/rig/cluster"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// TestRealCluster runs the package against a real API server behind the fault proxy: what is built is accepted, what
// happens is seen soon, and an outage is noticed and survived.
func TestRealCluster(t *testing.T) {
	dev := devcluster.Start(t, devcluster.Options{})[0]
	namespace := devcluster.Namespace(t, dev)
	kubeconfig, err := dev.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.New(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	w := newWorld(gives(proxy.Kubeconfig()))
	w.change("c1", func(c *cluster.Cluster) { c.Namespace = namespace })
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Second })
	client, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := EnsureNamespace(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	installation := uuid.NewString()
	seen := runWatch(t, func(ctx context.Context) (*Client, error) { return r.Get(ctx, "c1") }, func(o *WatchOptions) {
		o.Selector = job.Selector(installation)
	})
	eventually(t, "synced", seen.Synced)

	submit := func(t *testing.T, spec process.Spec) process.Attempt {
		t.Helper()
		a := process.Attempt{ID: uuid.NewString(), Namespace: namespace}
		v := process.Version{ID: uuid.NewString(), ProjectID: "p", ProcessName: "Größe_Test/1", Spec: spec}
		a.JobName = job.Name(v.ProcessName, a.ID)
		j, err := job.Build(job.Input{Installation: installation, Version: v, Attempt: a})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := client.Clientset.BatchV1().Jobs(namespace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return a
	}
	read := func(a process.Attempt) evidence.Finding {
		j := seen.Job(namespace, a.JobName)
		if j == nil {
			return evidence.Finding{}
		}
		return evidence.Read(evidence.Input{Job: j, Pods: seen.PodsOf(a.ID), Attempt: a})
	}

	t.Run("exit codes and literal text", func(t *testing.T) {
		ok := submit(t, process.Spec{Image: "any", Command: []string{"sh", "-c", `echo "$P"`}, Env: []process.EnvVar{{Name: "P", Value: "pa$$word $(HOME)"}}}) // B23
		bad := submit(t, process.Spec{Image: "any", Command: []string{"sh", "-c", "exit 3"}})
		eventually(t, "one succeeds", func() bool { return read(ok).State == process.Succeeded })
		eventually(t, "one fails", func() bool { return read(bad).State == process.Failed })
		if f := read(bad); f.ExitCode == nil || *f.ExitCode != 3 || f.ReasonCode != evidence.ExitNonZero {
			t.Errorf("finding %+v", f)
		}
		log, err := client.Logs(t.Context(), seen.PodsOf(ok.ID)[0].Name, job.MainContainer, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if text, err := io.ReadAll(log); err != nil || string(text) != "pa$$word $(HOME)\n" {
			t.Errorf("log %q, %v", text, err)
		}
	})

	t.Run("nothing fits", func(t *testing.T) { // B33
		a := submit(t, process.Spec{Image: "any", Command: []string{"true"}, Limits: map[string]string{"nvidia.com/gpu": "16"}})
		eventually(t, "unschedulable", func() bool { return read(a).ReasonCode == evidence.Unschedulable })
	})

	t.Run("cut streams resume", func(t *testing.T) {
		proxy.Cut()
		eventually(t, "connected again", func() bool { return ping(client) == nil })
		a := submit(t, process.Spec{Image: "any", Command: []string{"true"}})
		eventually(t, "seen after the cut", func() bool { return read(a).State == process.Succeeded })
	})

	t.Run("an expired watch lists again", func(t *testing.T) { // B43
		undo := proxy.Add(faultproxy.Expired(), faultproxy.On("GET", "watch=true"), faultproxy.Times(4))
		defer undo()
		watches := proxy.Count("GET", "watch=true")
		proxy.Cut()
		eventually(t, "connected again", func() bool { return ping(client) == nil })
		a := submit(t, process.Spec{Image: "any", Command: []string{"true"}})
		eventually(t, "seen after the expiry", func() bool { return read(a).State == process.Succeeded })
		eventually(t, "no problem is left", func() bool { return seen.Problem() == nil })
		if n := proxy.Count("GET", "watch=true") - watches; n < 4 || n > 20 {
			t.Errorf("%d watches were opened", n)
		}
	})

	t.Run("a frozen cluster is noticed and comes back", func(t *testing.T) {
		proxy.Freeze()
		start := time.Now()
		eventuallyIn(t, 40*time.Second, "unreachable", func() bool { got := seen.turns(); return !got[len(got)-1] })
		t.Logf("noticed after %s", time.Since(start).Round(time.Millisecond))
		proxy.Thaw()
		eventuallyIn(t, 60*time.Second, "reachable", func() bool { got := seen.turns(); return got[len(got)-1] })
		a := submit(t, process.Spec{Image: "any", Command: []string{"true"}})
		eventuallyIn(t, 40*time.Second, "work goes on", func() bool { return read(a).State == process.Succeeded })
	})
}
