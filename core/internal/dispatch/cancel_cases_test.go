package dispatch

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// (1): pods gone, finalizer for ever. Another version of the same process has a name of its own and runs meanwhile.
func TestB50_1_RerunBesideAJobThatAFinalizerKeeps(t *testing.T) {
	r, a, v := runningJob(t)
	old := r.attempt(v).JobName
	a.change(func(j *batchv1.Job) { j.Finalizers = []string{"foregroundDeletion"} })
	r.cancel(v)
	r.when("the deletion", func() bool { return a.only().DeletionTimestamp != nil }, nil)
	a.dropPod()
	r.until(v, "the note", func(a process.Attempt) bool {
		return a.State == process.Cancelling && strings.Contains(a.Reason, "foregroundDeletion")
	})
	again := r.state(r.submit(1)[0], process.Queued)
	if again.JobName == old || a.count() != 2 {
		t.Errorf("the rerun is %s beside %s; %d Jobs", again.JobName, old, a.count())
	}
	r.stop()
	r.options.FinalizerPatience = time.Millisecond
	r.start() // the patience is over
	r.state(v, process.Cancelled)
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs["jobs/"+old]; j == nil || len(j.Finalizers) != 1 {
		t.Error("the finalizer was removed")
	}
}

// (1): what waits to be created when everything is cancelled is never sent.
func TestB51_1_NothingIsSentAfterTheCancel(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	var busy, ended, late atomic.Bool
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if isPost(q) && ended.Load() {
			late.Store(true)
		}
		if isPost(q) && busy.Load() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests) // an API server's own words
			return
		}
		next(w, q)
	})
	r.add("a", a)
	r.start()
	all := r.submit(2)
	for _, v := range all {
		r.state(v, process.Queued)
	}
	busy.Store(true)
	all = append(all, r.submit(10)...)
	for _, v := range all[2:] {
		r.state(v, process.Creating)
	}
	for _, v := range all {
		r.cancel(v)
	}
	for _, v := range all {
		r.state(v, process.Cancelled)
	}
	ended.Store(true)
	busy.Store(false)
	r.restart()
	r.when("the restarted dispatcher is at work", func() bool { return r.d.fleet.worker(r.attempt(all[0]).ClusterID) != nil }, nil)
	if late.Load() || a.posted() != 2 || a.count() != 0 {
		t.Errorf("%d Jobs were made, %d are there", a.posted(), a.count())
	}
}

// (5), and a cancel of which nothing but the database knows: it came while no dispatcher ran.
func TestB51_5_CancelIsCarriedOutAfterARestart(t *testing.T) {
	r, a, v := runningJob(t)
	r.stop()
	placed := r.submit(1)[0] // not even placed
	r.cancel(v)
	r.cancel(placed)
	a.dropPod()
	r.start()
	r.state(v, process.Cancelled)
	r.state(placed, process.Cancelled)
	if a.count() != 0 || a.posted() != 1 {
		t.Errorf("%d Jobs are there, %d were made", a.count(), a.posted())
	}
}

// The fourth 409: the API server's own write was overtaken, as by two requests on one quota. Nothing was made.
func TestB31_ConflictIsSentAgain(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	a.surround(firstPost(func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		status(w, 409, metav1.StatusReasonConflict, `Operation cannot be fulfilled on resourcequotas "q": the object has been modified`)
	}))
	r.add("a", a)
	r.start()
	wantOneJob(t, r, a, r.submit(1)[0])
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests came through, want 1", n)
	}
}

// Pods and conditions that contradict each other: the Job's own end counts, once, and stays.
func TestB46_ConditionsAndPodsInAnyOrder(t *testing.T) {
	for name, step := range map[string]func(r *rig, a *api){
		"the pod succeeds, then fails, before the Job ends": func(_ *rig, a *api) {
			a.pod(nil, exited(0))
			a.pod(nil, exited(1))
			a.pod(nil, exited(0))
			a.change(completed)
		},
		"the Job ends before its pod, then an older state comes": func(_ *rig, a *api) {
			a.change(completed)
			a.pod(nil, exited(0))
			a.change(func(j *batchv1.Job) { j.Status.Conditions = nil; j.Status.Active = 1 })
			a.change(completed)
		},
		"the conditions in another order": func(_ *rig, a *api) {
			a.pod(nil, exited(0))
			a.change(func(j *batchv1.Job) { conclude(j, batchv1.JobSuccessCriteriaMet, "") })
			a.change(func(j *batchv1.Job) {
				j.Status.Conditions = nil
				completed(j)
				conclude(j, batchv1.JobSuccessCriteriaMet, "")
			})
		},
		"a restart meets it as added": func(r *rig, a *api) {
			r.stop()
			a.pod(nil, exited(0))
			a.change(completed)
			r.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, a, v := runningJob(t)
			step(r, a)
			end := r.until(v, "the end with its logs", func(a process.Attempt) bool { return a.State == process.Succeeded && a.LogsStored })
			for range 3 {
				a.change(func(*batchv1.Job) {})
			}
			a.pod(nil, exited(1))
			r.restart()
			r.until(r.submit(1)[0], "whatever was to happen", func(a process.Attempt) bool { return a.State == process.Queued })
			if again := r.attempt(v); again.Revision != end.Revision || again.State != end.State || !again.EndedAt.Equal(*end.EndedAt) {
				t.Errorf("the end changed: %+v", again)
			}
			ends := 0
			for _, e := range r.events(event.StateChanged) {
				if e.VersionID == v.ID && process.State(e.State).Terminal() {
					ends++
				}
			}
			if ends != 1 {
				t.Errorf("%d records of the end, want one", ends)
			}
		})
	}
}

// All of the API answers 429 and asks for patience: no call comes before that is over, and nothing is lost.
func TestB45_ThrottledAltogether(t *testing.T) {
	r, a, v := runningJob(t)
	var busy, early atomic.Bool
	var until atomic.Int64
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if !busy.Load() {
			next(w, q)
			return
		}
		if isPost(q) {
			if time.Now().UnixNano() < until.Load() {
				early.Store(true)
			}
			until.Store(time.Now().Add(2 * time.Second).UnixNano())
		}
		w.Header().Set("Retry-After", "2")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	})
	busy.Store(true)
	during := r.submit(1)[0]
	r.when("two tries", func() bool { return r.attempt(during).State == process.Creating && until.Load() > 0 }, nil)
	first := until.Load()
	r.when("the second try", func() bool { return until.Load() != first }, nil)
	busy.Store(false)
	r.state(during, process.Queued)
	if early.Load() {
		t.Error("a create request came before the time that the server had asked for")
	}
	if row := r.attempt(v); row.State != process.Running || a.posted() != 2 {
		t.Errorf("state %s, %d create requests", row.State, a.posted())
	}
}
