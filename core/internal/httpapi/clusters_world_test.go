package httpapi_test

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
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
