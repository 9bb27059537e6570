package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// waits puts the pod's main container into a waiting state.
func waits(reason, message string) func(p *corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Image: "busybox", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}

func (r *rig) submitSpec(s process.Spec) process.Version {
	r.t.Helper()
	s.Image, s.Command = "busybox", []string{"true"}
	out, _, err := r.db.Submit(r.t.Context(), r.project, []process.NewVersion{{
		ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "work", SubmittedBy: r.user, Spec: s, BodyHash: "x",
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

func TestB18_ImageThatCannotBePulledFailsAfterItsLimit(t *testing.T) {
	for reason, code := range map[string]string{
		"ErrImagePull": evidence.ImagePull, "InvalidImageName": evidence.InvalidImage, "CreateContainerConfigError": evidence.ContainerConfig,
	} {
		t.Run(reason, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			r.options.StartLimits = map[string]time.Duration{
				process.LimitImagePull: 1500 * time.Millisecond, process.LimitContainerConfig: 1500 * time.Millisecond,
			}
			r.add("a", a)
			r.start()
			v := r.submit(1)[0]
			r.state(v, process.Queued)
			a.pod(a.only().Labels, waits(reason, "no such thing"))
			row := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == code })
			if row.State != process.Queued || !strings.Contains(row.Reason, "no such thing") || row.BlockedSince == nil {
				t.Errorf("%+v", row)
			}
			r.when("the Job to be deleted", func() bool { return a.count() == 0 }, func() any { return r.attempt(v) })
			a.dropPod() // the cluster's garbage collector
			end := r.state(v, process.Failed)
			if end.ReasonCode != code || !strings.Contains(end.Reason, "no such thing") || !strings.Contains(end.Reason, "the server's limit start_limits.") {
				t.Errorf("%s: %s", end.ReasonCode, end.Reason)
			}
			if n := a.posted(); n != 1 {
				t.Errorf("%d create requests", n)
			}
		})
	}
}

func TestB18_PullThatFailsTwiceAndThenWorksSucceeds(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.StartLimits = map[string]time.Duration{process.LimitImagePull: time.Hour}
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.pod(a.only().Labels, waits("ErrImagePull", "one"))
	first := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == evidence.ImagePull })
	a.pod(nil, waits("ImagePullBackOff", "two"))
	second := r.until(v, "the other reason", func(a process.Attempt) bool { return strings.Contains(a.Reason, "two") })
	if !second.BlockedSince.Equal(*first.BlockedSince) {
		t.Error("the clock of the limit began anew")
	}
	a.pod(nil, running)
	if row := r.state(v, process.Running); row.BlockedBy != "" || row.BlockedSince != nil {
		t.Errorf("running, and blocked by %s", row.BlockedBy)
	}
	a.pod(nil, exited(0))
	a.change(completed)
	r.state(v, process.Succeeded)
	if got, want := r.history(v), []string{"creating", "queued", "running", "succeeded"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
}

func TestB18_UnschedulableHasItsOwnLimitAndTheProcessMaySetIt(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.options.StartLimits = map[string]time.Duration{process.LimitImagePull: time.Millisecond}
	r.add("a", a)
	r.start()
	noNode := func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
		}}
	}
	v := r.submitSpec(process.Spec{StartLimits: map[string]int64{process.LimitUnschedulable: 2}})
	r.state(v, process.Queued)
	a.pod(a.only().Labels, noNode)
	row := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == evidence.Unschedulable })
	r.restart() // the clock goes on
	r.when("the Job to be deleted", func() bool { return a.count() == 0 }, func() any { return r.attempt(v) })
	a.dropPod()
	end := r.state(v, process.Failed)
	if !strings.Contains(end.Reason, "0/1 nodes are available") || !strings.Contains(end.Reason, "the process's limit spec.start_limits.unschedulable") {
		t.Errorf("%s: %s", end.ReasonCode, end.Reason)
	}
	if end.BlockedSince == nil || !end.BlockedSince.Equal(*row.BlockedSince) {
		t.Errorf("blocked since %v, want %v", end.BlockedSince, row.BlockedSince)
	}
}

func TestB19_RefusedPodsFailAfterTheirLimit(t *testing.T) {
	for name, message := range map[string]string{
		"2 LimitRange": "failed quota: q: must specify limits.cpu",
		"3 webhook":    `admission webhook "p.example" denied the request: no latest tag`,
	} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			r.options.StartLimits = map[string]time.Duration{process.LimitPodsRefused: 500 * time.Millisecond}
			a.events = []corev1.Event{{
				ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "jobs"}, Reason: "FailedCreate", Message: message, LastTimestamp: metav1.Now(),
			}}
			r.add("a", a)
			r.start()
			v := r.submit(1)[0]
			end := r.state(v, process.Failed)
			if end.ReasonCode != evidence.PodsRefused || !strings.Contains(end.Reason, message) || !strings.Contains(end.Reason, "start_limits.pods_refused") {
				t.Errorf("%s: %s", end.ReasonCode, end.Reason)
			}
			if a.count() != 0 || a.posted() != 1 {
				t.Errorf("%d Jobs, %d create requests", a.count(), a.posted())
			}
		})
	}
}

func TestB19_RefusedPodsThatComeLaterRun(t *testing.T) {
	for name, message := range map[string]string{
		"1 quota":             "exceeded quota: q, requested: cpu=2",
		"4 webhook timed out": `failed calling webhook "p.example": context deadline exceeded`,
	} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			r.options.StartLimits = map[string]time.Duration{process.LimitPodsRefused: time.Hour}
			a.events = []corev1.Event{{
				ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "jobs"}, Reason: "FailedCreate", Message: message, LastTimestamp: metav1.Now(),
			}}
			r.add("a", a)
			r.start()
			v := r.submit(1)[0]
			r.until(v, "the reason", func(a process.Attempt) bool {
				return a.ReasonCode == evidence.PodsRefused && strings.Contains(a.Reason, message)
			})
			a.pod(a.only().Labels, running)
			r.state(v, process.Running)
			a.pod(nil, exited(0))
			a.change(completed)
			r.state(v, process.Succeeded)
			if n := a.posted(); n != 1 {
				t.Errorf("%d create requests", n)
			}
		})
	}
}

func TestTimeOutOfReachDoesNotCountAsBlocked(t *testing.T) {
	since := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	a := process.Attempt{BlockedBy: process.LimitQueue, BlockedSince: &since}
	unblock(&a, time.Minute)
	if want := since.Add(time.Minute); !a.BlockedSince.Equal(want) {
		t.Errorf("blocked since %v, want %v", a.BlockedSince, want)
	}
}
