package dispatch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func runningJob(t *testing.T) (*rig, *api, process.Version) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.pod(a.only().Labels, running)
	r.state(v, process.Running)
	return r, a, v
}

func TestB48_CancelDeletesByUIDWithPropagationAndWaitsForThePods(t *testing.T) {
	r, a, v := runningJob(t)
	uid := r.attempt(v).JobUID
	r.cancel(v)
	r.when("the delete", func() bool { return a.count() == 0 }, nil)
	r.until(v, "the wait for the pod", func(a process.Attempt) bool {
		return a.State == process.Cancelling && strings.Contains(a.Reason, "pod")
	})
	a.mu.Lock()
	for _, o := range a.deletes {
		if o.PropagationPolicy == nil || *o.PropagationPolicy != metav1.DeletePropagationBackground {
			t.Errorf("propagation %v", o.PropagationPolicy)
		}
		if o.Preconditions == nil || o.Preconditions.UID == nil || string(*o.Preconditions.UID) != uid {
			t.Errorf("preconditions %v", o.Preconditions)
		}
	}
	a.mu.Unlock()
	a.dropPod()
	r.state(v, process.Cancelled)
}

// A pod that the watch has not shown yet has printed something too: before its Job is deleted its log is followed.
func TestCancelFollowsPodsThatTheWatchHasNotShown(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if strings.HasSuffix(q.URL.Path, "/pods") && q.URL.Query().Get("watch") != "" {
			<-q.Context().Done() // it hangs, and tells of no pod
			return
		}
		if q.Method == http.MethodDelete && !r.logs.knows("pod") {
			t.Error("the Job is deleted before its pod is looked for")
		}
		next(w, q)
	})
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.pod(a.only().Labels, running)
	r.cancel(v)
	r.when("the delete", func() bool { return a.count() == 0 }, nil)
	a.dropPod()
	r.state(v, process.Cancelled)
}

func TestB50_FinalizerKeepsTheJob(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.FinalizerPatience = 300 * time.Millisecond
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.change(func(j *batchv1.Job) { j.Finalizers = []string{"example.com/held"} })
	a.pod(a.only().Labels, running)
	r.state(v, process.Running)
	r.cancel(v)
	r.until(v, "the wait for the pod", func(a process.Attempt) bool { return strings.Contains(a.Reason, "pod pod") })
	r.cancel(v) // a second time
	if got := r.attempt(v).State; got != process.Cancelling {
		t.Fatalf("state %s while the pod runs, want cancelling", got)
	}
	a.dropPod()
	end := r.state(v, process.Cancelled)
	if !strings.Contains(end.Reason, "example.com/held") {
		t.Errorf("reason %q does not name the finalizer", end.Reason)
	}
	if j := a.only(); len(j.Finalizers) != 1 {
		t.Error("the finalizer was removed")
	}
}

func TestB51_2_CancelWhileTheClusterIsAway(t *testing.T) {
	r, a, v := runningJob(t)
	var away atomic.Bool
	away.Store(true)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if away.Load() {
			hangUp(w)
			return
		}
		next(w, q)
	})
	r.cancel(v)
	r.until(v, "the reason", func(a process.Attempt) bool {
		return a.State == process.Cancelling && a.ReasonCode == reasonUnreachable && a.UnreachableSince != nil
	})
	r.restart() // B51 (5): a restart keeps it
	away.Store(false)
	a.dropPod()
	r.state(v, process.Cancelled)
	if a.count() != 0 {
		t.Error("the Job is still there")
	}
}

func TestB51_3_CompletesWhileBeingCancelled(t *testing.T) {
	t.Run("before the delete", func(t *testing.T) {
		r, a, v := runningJob(t)
		var block atomic.Bool
		block.Store(true)
		a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
			if q.Method == http.MethodDelete && block.CompareAndSwap(true, false) {
				a.pod(nil, exited(0))
				a.change(completed) // 50 ms earlier than the delete
			}
			next(w, q)
		})
		r.cancel(v)
		end := r.state(v, process.Succeeded)
		if *end.ExitCode != 0 {
			t.Errorf("exit code %d", *end.ExitCode)
		}
	})
	t.Run("the delete finds nothing", func(t *testing.T) {
		r, a, v := runningJob(t)
		a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
			if q.Method == http.MethodDelete && a.count() == 1 {
				a.drop(false)
			}
			next(w, q)
		})
		r.cancel(v)
		r.when("the Job to go", func() bool { return a.count() == 0 }, nil)
		a.dropPod()
		r.state(v, process.Cancelled)
	})
}

func TestB51_4_CancelTwiceIsOneEnd(t *testing.T) {
	r, a, v := runningJob(t)
	r.cancel(v)
	r.cancel(v)
	a.dropPod()
	end := r.state(v, process.Cancelled)
	r.cancel(v)
	if again := r.attempt(v); again != end && again.EndedAt.Compare(*end.EndedAt) != 0 {
		t.Error("the end changed")
	}
}

func TestCancelBeforeTheCreateIsSentIsPrompt(t *testing.T) {
	r := newRig(t)
	r.options.CreateWindow, r.options.CreateMargin = time.Hour, time.Hour
	r.options.CreateTimeout = time.Second
	r.add("away", nil) // nobody serves it: nothing can be sent
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Creating)
	r.cancel(v)
	r.state(v, process.Cancelled)
}

func TestCancelWhileACreateHasNoAnswer(t *testing.T) {
	for name, lands := range map[string]bool{"and it lands": true, "and it never lands": false} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			sent, land := make(chan struct{}), make(chan struct{})
			a.surround(firstPost(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
				body := q.Clone(q.Context())
				close(sent)
				<-land // the answer is long given up
				if lands {
					next(httptest.NewRecorder(), body)
				}
				hangUp(w)
			}))
			r.add("a", a)
			r.start()
			v := r.submit(1)[0]
			<-sent
			r.cancel(v)
			if got := r.attempt(v); got.State != process.Cancelling {
				t.Fatalf("state %s", got.State)
			}
			close(land)
			end := r.state(v, process.Cancelled)
			if a.count() != 0 {
				t.Error("cancelled, and a Job is there")
			}
			if !lands && end.EndedAt.Before(end.CreateDeadline.Add(r.options.CreateMargin)) {
				t.Error("called cancelled before the create could not take effect any more")
			}
		})
	}
}

func TestCreateThatLandsAfterAllIsDeleted(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", nil)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Creating)
	r.cancel(v)
	row := r.state(v, process.Cancelled)
	a.mu.Lock()
	a.setJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: row.JobName, Namespace: "jobs", UID: "late", Labels: map[string]string{
		"nagelfluh.io/installation": "test", "nagelfluh.io/attempt": row.ID,
	}}}, "ADDED")
	a.mu.Unlock()
	r.clients.set(id, a.client(id))
	r.when("the late Job to be deleted", func() bool { return a.count() == 0 }, nil)
	if got := r.attempt(v); got.Revision != row.Revision {
		t.Error("the end changed")
	}
}

func TestMaxRuntimeStopsTheJob(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	r.start()
	in := process.NewVersion{
		ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "long", SubmittedBy: r.user,
		Spec: process.Spec{Image: "busybox", MaxRuntimeSeconds: new(int64(1))}, BodyHash: "x",
	}
	out, _, err := r.db.Submit(t.Context(), r.project, []process.NewVersion{in})
	if err != nil {
		t.Fatal(err)
	}
	v := out[0]
	r.state(v, process.Queued)
	a.pod(a.only().Labels, running)
	r.until(v, "the stop", func(a process.Attempt) bool { return a.ReasonCode == reasonMaxRuntime })
	r.when("the delete", func() bool { return a.count() == 0 }, nil)
	r.restart() // what it is stopped for is not forgotten
	a.dropPod()
	end := r.state(v, process.Failed)
	if end.ReasonCode != reasonMaxRuntime {
		t.Errorf("reason code %s", end.ReasonCode)
	}
}
