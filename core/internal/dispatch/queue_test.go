package dispatch

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type object = map[string]any

// withKueue answers for Kueue: the queue "q" exists, and what the Workload's conditions are the test says; nil: there is
// no Workload.
func withKueue(a *api, forbidden bool, conditions func() []metav1.Condition) {
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		switch path := q.URL.Path; {
		case path == "/apis":
			group := func(name string) object {
				return object{"name": name, "preferredVersion": object{"groupVersion": name + "/v1beta2", "version": "v1beta2"}}
			}
			answer(w, 200, object{"kind": "APIGroupList", "groups": []object{group("kueue.x-k8s.io"), group("visibility.kueue.x-k8s.io")}})
		case strings.HasSuffix(path, "/workloads") && forbidden:
			status(w, 403, metav1.StatusReasonForbidden, "workloads is forbidden")
		case strings.HasSuffix(path, "/workloads"):
			items := []object{}
			if c := conditions(); c != nil {
				items = append(items, object{"metadata": object{"name": "w"}, "status": object{"conditions": c}})
			}
			answer(w, 200, object{"items": items})
		case strings.HasSuffix(path, "/localqueues"):
			answer(w, 200, object{"items": []object{{"metadata": object{"name": "q"}}}})
		case strings.HasSuffix(path, "/pendingworkloads"):
			answer(w, 200, object{"items": []object{{"metadata": object{"name": "other"}, "positionInLocalQueue": 0}, {"metadata": object{"name": "w"}, "positionInLocalQueue": 1}}})
		default:
			next(w, q)
		}
	})
}

func TestB27_SuspendedIsExplained(t *testing.T) {
	pending := []metav1.Condition{{Type: "QuotaReserved", Status: metav1.ConditionFalse, Reason: "Pending", Message: "insufficient unused quota for cpu"}}
	admitted := []metav1.Condition{{Type: "QuotaReserved", Status: metav1.ConditionTrue}, {Type: "Admitted", Status: metav1.ConditionTrue}}
	for name, c := range map[string]struct {
		queue      string
		conditions []metav1.Condition
		forbidden  bool
		code, says string
	}{
		"1 waits":          {"q", pending, false, evidence.QueueWaiting, "queue q (position 2): insufficient unused quota for cpu"},
		"2 admitted":       {"q", admitted, false, evidence.QueueAdmitted, "still suspended"},
		"3 no queue":       {"nowhere", nil, false, evidence.QueueMissing, "has no LocalQueue nowhere"},
		"3 no workload":    {"q", nil, false, evidence.QueueNoWorkload, "no Workload"},
		"5 not to be read": {"q", nil, true, evidence.QueueWaiting, "Waiting for admission by queue q."},
	} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			withKueue(a, c.forbidden, func() []metav1.Condition { return c.conditions })
			r.add("a", a)
			r.start()
			v := r.submitSpec(process.Spec{QueueName: c.queue})
			row := r.until(v, "the reason", func(a process.Attempt) bool {
				return a.ReasonCode == c.code && strings.Contains(a.Reason, c.says)
			})
			if row.State != process.Queued || row.BlockedBy != process.LimitQueue && !c.forbidden {
				t.Errorf("%+v", row)
			}
			r.cancel(v)
			r.state(v, process.Cancelled)
		})
	}
}

func TestB27_4_QueueAtAClusterWithoutKueueFailsQuickly(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.KueueLimit = 100 * time.Millisecond
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if q.URL.Path == "/apis" {
			answer(w, 200, object{"kind": "APIGroupList", "groups": []object{}})
			return
		}
		next(w, q)
	})
	r.add("a", a)
	r.start()
	v := r.submitSpec(process.Spec{QueueName: "q"})
	end := r.state(v, process.Failed)
	if end.ReasonCode != evidence.KueueMissing || !strings.Contains(end.Reason, `Kueue is not installed on cluster "a"`) {
		t.Errorf("%s: %s", end.ReasonCode, end.Reason)
	}
	if a.count() != 0 {
		t.Error("the Job is still there")
	}
}

func TestB26_PreemptedAndAdmittedAgain(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	withKueue(a, false, func() []metav1.Condition {
		return []metav1.Condition{
			{Type: "Evicted", Status: metav1.ConditionTrue, Reason: "Preempted", Message: "Preempted to accommodate a higher priority Workload"},
			{Type: "QuotaReserved", Status: metav1.ConditionFalse, Reason: "Pending", Message: "waiting for quota"},
		}
	})
	r.add("a", a)
	r.start()
	v := r.submitSpec(process.Spec{QueueName: "q"})
	r.state(v, process.Queued)
	suspend := func(is bool) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.Suspend = &is } }
	a.change(suspend(false))
	a.pod(a.only().Labels, running)
	r.state(v, process.Running)
	a.change(suspend(true))
	a.dropPod()
	row := r.until(v, "the cause", func(a process.Attempt) bool {
		return a.State == process.Queued && strings.Contains(a.Reason, "higher priority")
	})
	if row.ReasonCode != evidence.Preempted || !strings.Contains(row.Reason, "waiting for quota") || !row.RunEnded {
		t.Errorf("%s: %s (%+v)", row.ReasonCode, row.Reason, row)
	}
	a.change(suspend(false))
	a.pod(a.only().Labels, running)
	row = r.state(v, process.Running)
	if row.Runs != 2 {
		t.Errorf("%d runs, want 2", row.Runs)
	}
	a.pod(nil, exited(0))
	a.change(completed)
	r.state(v, process.Succeeded)
	if got, want := r.history(v), []string{"creating", "queued", "running", "queued", "running", "succeeded"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests", n)
	}
}
