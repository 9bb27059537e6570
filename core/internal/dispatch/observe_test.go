package dispatch

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestB28_JobRemovedBehindOurBack(t *testing.T) {
	for name, silently := range map[string]bool{"with an event": false, "the event is lost": true} {
		t.Run(name, func(t *testing.T) {
			r, a, v := runningJob(t)
			a.drop(silently)
			end := r.state(v, process.Unknown)
			if end.ReasonCode != reasonRemoved || !strings.Contains(end.Reason, `no longer exists on cluster "a"`) {
				t.Errorf("reason %s: %s", end.ReasonCode, end.Reason)
			}
			r.cancel(v) // works, and changes nothing
			r.restart()
			if n := a.posted(); n != 1 {
				t.Errorf("%d create requests, want 1: it must not run again", n)
			}
		})
	}
}

func TestB28_UnavailableIsNotGone(t *testing.T) {
	r, a, v := runningJob(t)
	var down atomic.Bool
	down.Store(true)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if down.Load() {
			status(w, 503, metav1.StatusReasonServiceUnavailable, "unavailable")
			return
		}
		next(w, q)
	})
	row := r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
	if row.State != process.Running {
		t.Errorf("state %s, want running", row.State)
	}
	down.Store(false)
	row = r.until(v, "the flag to go", func(a process.Attempt) bool { return a.UnreachableSince == nil })
	if row.State != process.Running {
		t.Errorf("state %s, want running", row.State)
	}
	if len(r.events(event.Unreachable)) != 1 || len(r.events(event.Reachable)) != 1 {
		t.Error("the outage is not among the events once")
	}
}

func TestB28_SameNameWithAnotherUIDIsNotOurs(t *testing.T) {
	r, a, v := runningJob(t)
	a.mu.Lock()
	for key, j := range a.jobs {
		a.dropJob(key)
		j = j.DeepCopy()
		j.UID = "another"
		completed(j)
		a.setJob(j, "ADDED")
	}
	a.mu.Unlock()
	end := r.state(v, process.Unknown)
	if !strings.Contains(end.Reason, "another one has its name") {
		t.Errorf("reason %q", end.Reason)
	}
	if a.count() != 1 || len(a.deletes) != 0 {
		t.Error("the other Job was touched")
	}
}

func TestAnotherClusterUnderTheEntryProvesNothing(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", a)
	c, err := r.db.Cluster(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c.Observed.Identity = "identity-1"
	if err := r.db.Observe(t.Context(), id, c.Observed); err != nil {
		t.Fatal(err)
	}
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.mu.Lock()
	a.namespaces["kube-system"], a.namespaces["jobs"] = "identity-2", "jobs-2"
	a.mu.Unlock()
	a.drop(false)
	row := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == reasonClusterChanged })
	if row.State != process.Queued {
		t.Errorf("state %s, want queued", row.State)
	}
}

func TestB21_RemovedBeforeItsResultWasRead(t *testing.T) {
	t.Run("while the server was stopped", func(t *testing.T) {
		r, a, v := runningJob(t)
		r.stop()
		a.change(completed)
		a.drop(false)
		r.start()
		end := r.state(v, process.Unknown)
		if end.ExitCode != nil {
			t.Error("an exit code was made up")
		}
		if n := a.posted(); n != 1 {
			t.Errorf("%d create requests, want 1", n)
		}
	})
	t.Run("the last state says Complete", func(t *testing.T) {
		r, a, v := runningJob(t)
		a.pod(nil, exited(0))
		a.mu.Lock()
		for key, j := range a.jobs { // only the DELETED event carries the condition
			j = j.DeepCopy()
			completed(j)
			a.jobs[key] = j
			a.dropJob(key)
		}
		a.mu.Unlock()
		r.state(v, process.Succeeded)
	})
	t.Run("our own delete finds nothing", func(t *testing.T) {
		r, a := newRig(t), newAPI(t)
		r.options.Retention = time.Millisecond
		a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
			if q.Method == http.MethodDelete {
				a.drop(false)
			}
			next(w, q)
		})
		r.add("a", a)
		r.start()
		v := r.submit(1)[0]
		r.state(v, process.Queued)
		a.pod(a.only().Labels, exited(0))
		a.change(completed)
		end := r.state(v, process.Succeeded)
		r.when("the Job to go", func() bool { return a.count() == 0 }, nil)
		if again := r.attempt(v); again.State != end.State {
			t.Errorf("state %s", again.State)
		}
	})
}

func TestB46_RepeatedAndContradictoryEventsChangeNoEnd(t *testing.T) {
	r, a, v := runningJob(t)
	a.pod(nil, exited(0))
	a.change(completed)
	end := r.until(v, "the end with its logs", func(a process.Attempt) bool { return a.State == process.Succeeded && a.LogsStored })
	for range 3 {
		a.change(func(j *batchv1.Job) { j.Status.Conditions = nil })
		a.change(failedJob)
	}
	a.pod(nil, exited(1))
	r.restart()
	r.state(r.submit(1)[0], process.Queued) // whatever was to happen has
	if again := r.attempt(v); again.Revision != end.Revision || !again.EndedAt.Equal(*end.EndedAt) {
		t.Errorf("the end changed: %+v", again)
	}
	if got, want := r.history(v), []string{"creating", "queued", "running", "succeeded"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
}

func TestB19_RefusedPodsAreExplained(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	a.events = []corev1.Event{{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "jobs"}, Reason: "FailedCreate",
		Message: "exceeded quota: q, requested: cpu=2", LastTimestamp: metav1.Now(),
	}}
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	row := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == evidence.PodsRefused })
	if row.State != process.Queued || !strings.Contains(row.Reason, "exceeded quota") {
		t.Errorf("%s: %s", row.State, row.Reason)
	}
}

func TestRetentionDeletesTheJobOnceItsLogsAreStored(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.Retention = 50 * time.Millisecond
	r.logs.fail = http.ErrBodyNotAllowed
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	row := r.state(v, process.Queued)
	a.pod(a.only().Labels, exited(0))
	a.change(completed)
	r.state(v, process.Succeeded)
	tries := func() int {
		r.logs.mu.Lock()
		defer r.logs.mu.Unlock()
		return r.logs.finished[row.ID]
	}
	r.when("the logs to be tried again", func() bool { return tries() >= 2 }, nil)
	if a.count() != 1 {
		t.Fatal("the Job was deleted before its logs were stored")
	}
	r.logs.mu.Lock()
	r.logs.fail = nil
	r.logs.mu.Unlock()
	r.when("the Job to be deleted", func() bool { return a.count() == 0 }, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.deletes {
		if o.PropagationPolicy == nil || o.Preconditions == nil || string(*o.Preconditions.UID) != row.JobUID {
			t.Errorf("delete options %+v", o)
		}
	}
}

func TestJobsThatEndedBeforeTheStartAreRetiredToo(t *testing.T) {
	r, a, v := runningJob(t)
	a.pod(nil, exited(0))
	a.change(completed)
	r.until(v, "the logs", func(a process.Attempt) bool { return a.LogsStored })
	r.stop()
	r.options.Retention = time.Millisecond
	r.start()
	r.when("the Job to be deleted", func() bool { return a.count() == 0 }, nil)
}

func TestJobOfAnotherEntryForTheSameClusterIsNoOrphan(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	first := r.add("one", a)
	r.add("two", a)
	r.placer.to(first)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.change(func(j *batchv1.Job) { j.Labels[job.LabelProject] = "p" })
	r.state(r.submit(1)[0], process.Queued)
	if n := len(r.events(event.Orphan)); n != 0 {
		t.Errorf("%d orphans reported", n)
	}
}

func TestRetiredClusterWithLiveAttemptsIsStillLookedAfter(t *testing.T) {
	r, a, v := runningJob(t)
	clusters, err := r.db.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clusters {
		if _, err := r.db.UpdateCluster(t.Context(), c.ID, nil, func(old *cluster.Cluster) error { old.Active = false; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	r.restart()
	a.pod(nil, exited(0))
	a.change(completed)
	r.state(v, process.Succeeded)
}
