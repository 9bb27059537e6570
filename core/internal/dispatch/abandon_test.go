package dispatch

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// A server that ends between the removal and the end of the logs closes them when it is back.
func TestB54LogsAreClosedAfterARestart(t *testing.T) {
	r, _, id, runs, _ := oneOfEach(t)
	if _, _, err := r.service().Remove(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	r.until(runs, "the end of its log", func(a process.Attempt) bool { return a.LogsStored })
	r.stop()
	if _, err := r.db.UpdateAttempt(t.Context(), r.attempt(runs).ID, func(a *process.Attempt) ([]event.Event, error) {
		a.LogsStored = false
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.until(runs, "the end of its log", func(a process.Attempt) bool { return a.LogsStored })
}

// service is what removes clusters; nothing of it connects.
func (r *rig) service() *cluster.Service { return cluster.NewService(r.db, nil, nil, r.d) }

// oneOfEach has one attempt that runs and one that is queued.
func oneOfEach(t *testing.T) (r *rig, a *api, id string, runs, waits process.Version) {
	r, a = newRig(t), newAPI(t)
	id = r.add("a", a)
	r.start()
	runs = r.submit(1)[0]
	r.state(runs, process.Queued)
	a.pod(a.only().Labels, running)
	r.state(runs, process.Running)
	waits = r.submit(1)[0]
	r.state(waits, process.Queued)
	return r, a, id, runs, waits
}

func outcomeOf(t *testing.T, out cluster.Abandonment, v process.Version) cluster.AbandonedAttempt {
	t.Helper()
	for _, a := range out.Attempts {
		if a.VersionID == v.ID {
			return a
		}
	}
	t.Fatalf("nothing is said of version %s: %+v", v.ID, out)
	return cluster.AbandonedAttempt{}
}

func TestB54ForceWhileReachable(t *testing.T) {
	r, a, id, runs, waits := oneOfEach(t)
	if err := r.service().Delete(t.Context(), id, nil); err == nil || !strings.Contains(err.Error(), "live attempts (2)") {
		t.Fatalf("without force: %v", err)
	}
	_, out, err := r.service().Remove(t.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.count() != 0 || !out.Reached || len(out.Attempts) != 2 {
		t.Errorf("%d Jobs are left; %+v", a.count(), out)
	}
	if o := outcomeOf(t, out, runs); o.Was != "running" || o.State != "unknown" || o.MayStillRun || !strings.Contains(o.Reason, `Cluster "a" was removed`) {
		t.Errorf("the running one: %+v", o)
	}
	if o := outcomeOf(t, out, waits); o.Was != "queued" || o.State != "failed" || o.MayStillRun {
		t.Errorf("the queued one: %+v", o)
	}
	for v, want := range map[string]process.State{runs.ID: process.Unknown, waits.ID: process.Failed} {
		now, err := r.db.Version(t.Context(), v)
		if err != nil || now.State() != want || now.Attempt.ReasonCode != reasonClusterRemoved || now.Attempt.EndedAt == nil {
			t.Errorf("%+v, %v; want %s", now.Attempt, err, want)
		}
	}
	// The logs are closed, so that streams end.
	r.until(runs, "the end of its log", func(a process.Attempt) bool { return a.LogsStored })
	r.logs.mu.Lock()
	if len(r.logs.abandoned) == 0 {
		t.Error("the logs were not closed as those of a removed cluster")
	}
	r.logs.mu.Unlock()
	if _, err := r.db.Cluster(t.Context(), id); err == nil {
		t.Error("the row is still there")
	}
	// A new cluster of the name does not inherit.
	b := newAPI(t)
	again := r.add("a", b)
	next := r.submit(1)[0]
	r.state(next, process.Queued)
	if n, err := r.db.LiveStatesOn(t.Context(), again); err != nil || n["queued"] != 1 || len(n) != 1 {
		t.Errorf("%v, %v", n, err)
	}
	if old := r.attempt(runs); old.ClusterID != id || b.count() != 1 {
		t.Errorf("the old attempt is on %s; the new cluster has %d Jobs", old.ClusterID, b.count())
	}
}

func TestB54ForceWhileUnreachable(t *testing.T) {
	r, a, id, runs, waits := oneOfEach(t)
	var away atomic.Bool
	away.Store(true)
	release := make(chan struct{})
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if away.Load() {
			select { // it takes what comes and is silent
			case <-q.Context().Done():
			case <-release:
			}
			return
		}
		next(w, q)
	})
	defer close(release)
	began := time.Now()
	_, out, err := r.service().Remove(t.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 3*abandonFor {
		t.Errorf("it took %s", took)
	}
	if out.Reached {
		t.Error("a silent cluster counts as reached")
	}
	for _, v := range []process.Version{runs, waits} {
		if o := outcomeOf(t, out, v); o.State != "unknown" || !o.MayStillRun || o.JobName == "" || o.Namespace != "jobs" || !strings.Contains(o.Reason, "may still run") {
			t.Errorf("%+v", o)
		}
	}
	if a.count() != 2 {
		t.Errorf("%d Jobs", a.count())
	}
	// What it does later changes nothing.
	away.Store(false)
	r.until(runs, "the end of its log", func(a process.Attempt) bool { return a.LogsStored && a.State == process.Unknown })
}

// A create request whose answer is lost may still make a Job; nobody says that there is none.
func TestB54ForceWhileACreateIsUnderWay(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.CreateTimeout, r.options.CreateWindow = 20*time.Second, 30*time.Second
	posted, release := make(chan struct{}, 8), make(chan struct{})
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if q.Method == http.MethodPost {
			posted <- struct{}{}
			<-release
		}
		next(w, q)
	})
	id := r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	select {
	case <-posted:
	case <-time.After(patience20):
		t.Fatal("no create request")
	}
	_, out, err := r.service().Remove(t.Context(), id, nil)
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if o := outcomeOf(t, out, v); o.State != "unknown" || !o.MayStillRun || !out.Reached {
		t.Errorf("%+v", o)
	}
}

// Something was placed between the look and the removal: it is ended too.
func TestB54NothingSlipsThrough(t *testing.T) {
	r, _, id, _, _ := oneOfEach(t)
	s := &slipping{rig: r, Dispatcher: r.d, id: id}
	if _, out, err := cluster.NewService(r.db, nil, nil, s).Remove(t.Context(), id, nil); err != nil || len(out.Attempts) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	if n, err := r.db.LiveStatesOn(t.Context(), id); err != nil || len(n) != 0 {
		t.Errorf("%v, %v", n, err)
	}
}

// slipping places one more attempt after the others were ended.
type slipping struct {
	*Dispatcher
	rig  *rig
	id   string
	done bool
}

func (s *slipping) Abandon(ctx context.Context, c cluster.Cluster) (cluster.Abandonment, error) {
	out, err := s.Dispatcher.Abandon(ctx, c)
	if s.done || err != nil {
		return out, err
	}
	s.done = true
	s.rig.placer.to("")
	v := s.rig.submit(1)[0]
	_, err = s.rig.db.UpdateAttempt(ctx, v.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
		a.State, a.ClusterID, a.Namespace, a.JobName = process.Creating, s.id, "jobs", "late"
		return nil, nil
	})
	return out, err
}

// Retired instead: what runs goes on to its end.
func TestB54RetiredClusterKeepsItsAttempts(t *testing.T) {
	r, a, v := runningJob(t)
	active := false
	if _, _, err := r.service().Update(t.Context(), r.attempt(v).ClusterID, nil, cluster.Patch{Active: &active}); err != nil {
		t.Fatal(err)
	}
	a.pod(a.only().Labels, exited(0))
	a.change(completed)
	r.state(v, process.Succeeded)
}
