package dispatch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

type around = func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)

func isPost(r *http.Request) bool { return r.Method == http.MethodPost }

// firstPost does f to the first create request alone.
func firstPost(f around) around {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if isPost(r) && n.Add(1) == 1 {
			f(w, r, next)
			return
		}
		next(w, r)
	}
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func wantOneJob(t *testing.T, r *rig, a *api, v process.Version) {
	t.Helper()
	row := r.state(v, process.Queued)
	if a.count() != 1 || string(a.only().UID) != row.JobUID {
		t.Errorf("%d Jobs, want the one that the row pins", a.count())
	}
}

func TestB31_1_AnswerLostAfterTheJobWasMade(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	a.surround(firstPost(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		next(httptest.NewRecorder(), q)
		hangUp(w)
	}))
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	wantOneJob(t, r, a, v)
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests, want 1: the Job was there to be found", n)
	}
}

func TestB31_1_RequestLostBeforeTheJobWasMade(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	var first, second atomic.Int64
	var n atomic.Int32
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		switch {
		case isPost(q) && n.Add(1) == 1:
			first.Store(time.Now().UnixNano())
			hangUp(w)
		case isPost(q):
			second.CompareAndSwap(0, time.Now().UnixNano())
			next(w, q)
		default:
			next(w, q)
		}
	})
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.until(v, "the cause of the wait", func(a process.Attempt) bool { return a.ReasonCode == reasonUnsure })
	wantOneJob(t, r, a, v)
	row := r.attempt(v)
	if !row.IntentAt.After(*row.PlacedAt) {
		t.Error("the second request had no intent of its own")
	}
	// The first might have taken effect until its deadline; nothing is sent before that and the margin.
	if gap := time.Duration(second.Load() - first.Load()); gap < r.options.CreateTimeout {
		t.Errorf("the second request came %s after the first", gap)
	}
}

func TestB31_2_TimeoutAnsweredAfterTheJobWasMade(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	a.surround(firstPost(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		next(httptest.NewRecorder(), q)
		status(w, 504, metav1.StatusReasonTimeout, "request did not complete within the allotted timeout")
	}))
	r.add("a", a)
	r.start()
	wantOneJob(t, r, a, r.submit(1)[0])
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests, want 1", n)
	}
}

// occupy puts a Job under the name of the attempt that is about to be created.
func occupy(r *rig, a *api, change func(j *batchv1.Job)) {
	r.placer.set(func(id string, q placement.Request) placement.Decision {
		clusters, err := r.db.Clusters(context.Background())
		if err != nil {
			panic(err)
		}
		var to string
		for _, c := range clusters {
			if c.ID != cluster.DefaultID {
				to = c.ID
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name(q.Version.ProcessName, id), Namespace: "jobs", UID: "stranger"}}
		change(j)
		a.setJob(j, "ADDED")
		return placement.Decision{Outcome: placement.Placed, ClusterID: to}
	})
}

func TestB31_3_NameTakenByAStranger(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	occupy(r, a, func(j *batchv1.Job) { j.Labels = map[string]string{"owner": "someone"} })
	r.start()
	end := r.state(r.submit(1)[0], process.Failed)
	if end.ReasonCode != reasonConflict || !strings.Contains(end.Reason, "left alone") {
		t.Errorf("reason %s: %s", end.ReasonCode, end.Reason)
	}
	if j := a.only(); j == nil || j.UID != "stranger" || j.DeletionTimestamp != nil || len(a.deletes) > 0 {
		t.Error("the stranger's Job was touched")
	}
}

func TestB31_4_NameHeldByAnObjectThatIsBeingDeleted(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	occupy(r, a, func(j *batchv1.Job) {
		now := metav1.Now()
		j.DeletionTimestamp, j.Finalizers = &now, []string{"foregroundDeletion"}
	})
	r.start()
	v := r.submit(1)[0]
	r.until(v, "the wait to be shown", func(a process.Attempt) bool { return a.ReasonCode == reasonNameHeld })
	a.drop(false)
	wantOneJob(t, r, a, v)
}

// flaky is a store whose writes of attempts fail when the test says so.
type flaky struct {
	*store.DB
	fail func(op string) error
}

func (f *flaky) UpdateAttempt(ctx context.Context, id string, change Change) (process.Attempt, error) {
	if err := f.fail("update"); err != nil {
		return process.Attempt{}, err
	}
	return f.DB.UpdateAttempt(ctx, id, change)
}

func (f *flaky) Decide(ctx context.Context, d placement.Decision, change Change) (process.Attempt, error) {
	row, err := f.DB.Decide(ctx, d, change)
	if ferr := f.fail("decide"); ferr != nil {
		return process.Attempt{}, ferr
	}
	return row, err
}

func TestB31_5_CoreDiesBetweenTheAnswerAndItsOwnWrite(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	var dead atomic.Bool
	dead.Store(true)
	r.options.Store = &flaky{r.db, func(op string) error {
		if op == "update" && dead.Load() {
			return errors.New("the process is dying")
		}
		return nil
	}}
	r.start()
	v := r.submit(1)[0]
	r.when("the Job", func() bool { return a.count() == 1 }, nil)
	r.stop()
	if row := r.attempt(v); row.State != process.Creating || row.JobUID != "" {
		t.Fatalf("row before the restart: %+v", row)
	}
	dead.Store(false)
	r.start()
	wantOneJob(t, r, a, v)
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests, want 1", n)
	}
}

func TestB31_6_OwnWriteFailsOnce(t *testing.T) {
	for _, op := range []string{"update", "decide"} {
		t.Run(op, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			r.add("a", a)
			var n atomic.Int32
			r.options.Store = &flaky{r.db, func(o string) error {
				if o == op && n.Add(1) == 1 {
					return errors.New("disk is busy")
				}
				return nil
			}}
			r.start()
			wantOneJob(t, r, a, r.submit(1)[0])
			if n := a.posted(); n != 1 {
				t.Errorf("%d create requests, want 1", n)
			}
		})
	}
}

func TestCancelWhileTheMadeJobIsNotNotedYet(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	var dead atomic.Bool
	dead.Store(true)
	r.options.Store = &flaky{r.db, func(op string) error {
		if op == "update" && dead.Load() {
			return errors.New("disk is busy")
		}
		return nil
	}}
	// The watch shows nothing, so that only what is remembered of the create counts.
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/jobs") && q.URL.Query().Get("limit") == "" {
			status(w, 403, metav1.StatusReasonForbidden, "no")
			return
		}
		next(w, q)
	})
	r.start()
	v := r.submit(1)[0]
	r.when("the Job", func() bool { return a.count() == 1 }, nil)
	r.cancel(v)
	dead.Store(false)
	r.state(v, process.Cancelled)
	if a.count() != 0 {
		t.Error("cancelled, and its Job is there")
	}
}

func TestRefusedCreateFailsWithTheServersWords(t *testing.T) {
	for name, c := range map[string]struct {
		code   int32
		reason metav1.StatusReason
		text   string
	}{
		"forbidden": {403, metav1.StatusReasonForbidden, `jobs.batch is forbidden: User "u" cannot create resource "jobs" in API group "batch"`},
		"invalid":   {422, metav1.StatusReasonInvalid, `Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value`},
		"bad":       {400, metav1.StatusReasonBadRequest, `admission webhook "p.example" denied the request: no latest tag`},
	} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
				if isPost(q) {
					status(w, c.code, c.reason, c.text)
					return
				}
				next(w, q)
			})
			r.add("prod", a)
			r.start()
			end := r.state(r.submit(1)[0], process.Failed)
			for _, want := range []string{c.text, "create", "jobs.batch", `"jobs"`, `"prod"`} {
				if !strings.Contains(end.Reason, want) {
					t.Errorf("reason %q lacks %q", end.Reason, want)
				}
			}
		})
	}
}

func TestMissingNamespace(t *testing.T) {
	without := func(r *rig, a *api) {
		a.mu.Lock()
		delete(a.namespaces, "jobs")
		a.mu.Unlock()
		r.add("prod", a)
	}
	t.Run("is made when allowed", func(t *testing.T) {
		r, a := newRig(t), newAPI(t)
		without(r, a)
		a.makesNamespaces = true
		r.start()
		wantOneJob(t, r, a, r.submit(1)[0])
	})
	t.Run("fails the attempt when not", func(t *testing.T) {
		r, a := newRig(t), newAPI(t)
		without(r, a)
		r.start()
		end := r.state(r.submit(1)[0], process.Failed)
		if !strings.Contains(end.Reason, `"jobs"`) || !strings.Contains(end.Reason, `"prod"`) {
			t.Errorf("reason %q", end.Reason)
		}
	})
}

func TestB45_SubmissionDuringAnOutageMakesOneJob(t *testing.T) {
	for name, wrong := range map[string]around{
		"leader changed": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
			status(w, 500, metav1.StatusReasonInternalError, "etcdserver: leader changed")
		},
		"unavailable": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
			status(w, 503, metav1.StatusReasonServiceUnavailable, "the server is currently unable to handle the request")
		},
		"cut": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) { hangUp(w) },
	} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			var broken atomic.Bool
			broken.Store(true)
			a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
				if broken.Load() {
					wrong(w, q, next)
					return
				}
				next(w, q)
			})
			r.add("a", a)
			r.start()
			v := r.submit(1)[0]
			r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
			broken.Store(false)
			wantOneJob(t, r, a, v)
			r.until(v, "the flag to go", func(a process.Attempt) bool { return a.UnreachableSince == nil })
			if len(r.events(event.Unreachable)) != 1 || len(r.events(event.Reachable)) != 1 {
				t.Error("the outage is not among the events once")
			}
		})
	}
}

func TestB45_RetryAfterIsRespected(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	var first, second atomic.Int64
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		switch {
		case isPost(q) && first.CompareAndSwap(0, time.Now().UnixNano()):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		case isPost(q):
			second.CompareAndSwap(0, time.Now().UnixNano())
		}
		next(w, q)
	})
	r.add("a", a)
	r.start()
	wantOneJob(t, r, a, r.submit(1)[0])
	if pause := time.Duration(second.Load() - first.Load()); pause < time.Second {
		t.Errorf("the second request came after %s, the server had asked for 1s", pause)
	}
}

func TestOrphanIsReportedOnceAndLeftAlone(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	a.mu.Lock()
	a.setJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "lost", Namespace: "jobs", UID: "u1", Labels: map[string]string{
		job.LabelInstallation: "test", job.LabelAttempt: newID(),
	}}}, "ADDED")
	a.mu.Unlock()
	r.start()
	r.when("the report", func() bool { return len(r.events(event.Orphan)) == 1 }, nil)
	a.change(func(j *batchv1.Job) { j.Status.Active = 1 })
	wantOneMore := r.submit(1)[0]
	r.state(wantOneMore, process.Queued)
	if n := len(r.events(event.Orphan)); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
	if len(a.deletes) != 0 {
		t.Error("the orphan was deleted")
	}
}
