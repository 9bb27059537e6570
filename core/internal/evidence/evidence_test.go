package evidence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

var (
	t0 = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	t1 = t0.Add(time.Minute)
	t2 = t0.Add(2 * time.Minute)
)

func aJob(changes ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Labels: map[string]string{}}}
	for _, change := range changes {
		change(j)
	}
	return j
}

func with(kind batchv1.JobConditionType, reason, message string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(t2),
		})
	}
}

func suspendedIn(queue string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Suspend = new(true)
		if queue != "" {
			j.Labels[job.LabelQueue] = queue
		}
	}
}

func aPod(name string, phase corev1.PodPhase, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(t0)}}
	p.Status.Phase, p.Spec.NodeName = phase, node
	for _, change := range changes {
		change(p)
	}
	return p
}

func waits(reason, message string) func(*corev1.Pod) {
	return status(job.MainContainer, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func running(container string) func(*corev1.Pod) {
	return status(container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t1)}})
}

func exited(container string, code int32, reason string) func(*corev1.Pod) {
	return status(container, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(t1), FinishedAt: metav1.NewTime(t2),
	}})
}

func status(container string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, Image: "registry.example/worker:1", State: state,
		})
	}
}

func podIs(kind corev1.PodConditionType, ok corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: ok, Reason: reason, Message: message})
	}
}

func created(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(t2)) }

func TestRead(t *testing.T) {
	events := func(reason, message string) []corev1.Event {
		return []corev1.Event{{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(t1)}}
	}
	ranBefore := process.Attempt{State: process.Running, StartedAt: &t1, Runs: 1}
	tests := map[string]struct {
		in     Input
		state  process.State
		code   string
		reason string // a part of the sentence
		exit   string // "nil" or a number
		runs   int32
	}{
		"no pod yet": {
			in: Input{Job: aJob()}, state: process.Queued, code: NoPod, exit: "nil"},
		"B19 quota refuses the pod": {
			in:    Input{Job: aJob(), Events: events("FailedCreate", "exceeded quota: q, requested: cpu=2")},
			state: process.Queued, code: PodsRefused, reason: "exceeded quota: q", exit: "nil"},
		"scheduler has not looked": {
			in: Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "")}}, state: process.Queued, code: Scheduling, exit: "nil"},
		"unschedulable": {
			in: Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "",
				podIs(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."))}},
			state: process.Queued, code: Unschedulable, reason: "Insufficient nvidia.com/gpu", exit: "nil"},
		"container creating": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "n1", waits("ContainerCreating", ""))}},
			state: process.Queued, code: ContainerStart, reason: "n1", exit: "nil"},
		"B18 image cannot be pulled": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "n1", waits("ImagePullBackOff", "Back-off pulling image"))}},
			state: process.Queued, code: ImagePull, reason: "Back-off pulling image", exit: "nil"},
		"B18 first pull error": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "n1", waits("ErrImagePull", "not found"))}},
			state: process.Queued, code: ImagePull, reason: "registry.example/worker:1", exit: "nil"},
		"B18 invalid image name": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "n1", waits("InvalidImageName", "bad"))}},
			state: process.Queued, code: InvalidImage, exit: "nil"},
		"B18 config error": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodPending, "n1", waits("CreateContainerConfigError", `secret "x" not found`))}},
			state: process.Queued, code: ContainerConfig, reason: `secret "x" not found`, exit: "nil"},
		"running": {
			in:    Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}},
			state: process.Running, code: Running, reason: "n1", exit: "nil", runs: 1},
		"running seen again": {
			in:    Input{Job: aJob(), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}},
			state: process.Running, code: Running, exit: "nil", runs: 1},
		"B30 sidecar holds after 0": {
			in:    Input{Job: aJob(), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", exited("main", 0, "Completed"), running("istio-proxy"))}},
			state: process.Running, code: SidecarHold, reason: "container istio-proxy runs", exit: "0", runs: 1},
		"B30 sidecar holds after 3": {
			in:    Input{Job: aJob(), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", exited("main", 3, "Error"), running("istio-proxy"))}},
			state: process.Running, code: SidecarHold, reason: "exit code 3", exit: "3", runs: 1},
		"pod ended, Job not yet": {
			in:    Input{Job: aJob(), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodSucceeded, "n1", exited("main", 0, "Completed"))}},
			state: process.Running, code: Finishing, exit: "0", runs: 1},
		"SuccessCriteriaMet is no end": {
			in: Input{Job: aJob(with(batchv1.JobSuccessCriteriaMet, "", "")), Attempt: ranBefore}, state: process.Running, code: Finishing, exit: "nil", runs: 1},
		"FailureTarget is no end": {
			in: Input{Job: aJob(with(batchv1.JobFailureTarget, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 1, "Error"))}},
			state: process.Running, code: Finishing, exit: "1", runs: 1},
		"complete": {
			in: Input{Job: aJob(with(batchv1.JobComplete, "", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodSucceeded, "n1", exited("main", 0, "Completed"))}},
			state: process.Succeeded, code: Completed, exit: "0", runs: 1},
		"complete, pods gone": {
			in: Input{Job: aJob(with(batchv1.JobComplete, "", "")), Attempt: ranBefore}, state: process.Succeeded, code: Completed, exit: "0", runs: 1},
		"failed with exit code of the last pod": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{
					aPod("b", corev1.PodFailed, "n1", created(t2), exited("main", 4, "Error")), aPod("a", corev1.PodFailed, "n1", exited("main", 3, "Error"))}},
			state: process.Failed, code: ExitNonZero, reason: "exit code 4", exit: "4", runs: 1},
		"out of memory": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 137, "OOMKilled"))}},
			state: process.Failed, code: OOMKilled, reason: "memory", exit: "137", runs: 1},
		"pod deadline": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 137, "Error"), func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" })}},
			state: process.Failed, code: DeadlineExceeded, exit: "137", runs: 1},
		"job deadline": {
			in:    Input{Job: aJob(with(batchv1.JobFailed, "DeadlineExceeded", "Job was active longer")), Attempt: ranBefore},
			state: process.Failed, code: DeadlineExceeded, exit: "nil", runs: 1},
		"evicted": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", func(p *corev1.Pod) {
					p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory."
				})}},
			state: process.Failed, code: Evicted, reason: "low on resource: memory", exit: "nil", runs: 1},
		"evicted by its own limit": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", func(p *corev1.Pod) {
					p.Status.Reason, p.Status.Message = "Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "
				})}},
			state: process.Failed, code: StorageLimit, reason: "total limit of containers 4Mi", exit: "nil", runs: 1},
		"backoff with nothing known": {
			in:    Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Attempt: ranBefore},
			state: process.Failed, code: BackoffExceeded, exit: "nil", runs: 1},
		"failed for another reason": {
			in:    Input{Job: aJob(with(batchv1.JobFailed, "PodFailurePolicy", "rule 0"))},
			state: process.Failed, code: JobFailed, reason: "rule 0", exit: "nil"},
		"B27 waits in a queue": {
			in: Input{Job: aJob(suspendedIn("team-a"))}, state: process.Queued, code: QueueWaiting, reason: "Waiting for admission by queue team-a", exit: "nil"},
		"suspended without a queue": {
			in: Input{Job: aJob(suspendedIn(""))}, state: process.Queued, code: Suspended, exit: "nil"},
		"B26 preempted by Kueue": {
			in: Input{Job: aJob(suspendedIn("team-a")), Attempt: ranBefore}, state: process.Queued, code: Preempted, reason: "queue team-a", exit: "nil", runs: 1},
		"B26 suspended and its pod still runs": {
			in:    Input{Job: aJob(suspendedIn("team-a")), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"), deleted)}},
			state: process.Running, code: Running, exit: "nil", runs: 1},
		"B26 pod seen before the Job that was resumed for it": {
			in:    Input{Job: aJob(suspendedIn("team-a")), Attempt: process.Attempt{State: process.Queued}, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}},
			state: process.Running, code: Running, exit: "nil", runs: 1},
		"B26 disrupted pod, next one follows": {
			in: Input{Job: aJob(), Attempt: ranBefore, Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1",
				podIs(corev1.DisruptionTarget, corev1.ConditionTrue, "PreemptionByScheduler", "preempting to accommodate a higher priority pod"))}},
			state: process.Queued, code: Preempted, reason: "higher priority", exit: "nil", runs: 1},
		"B26 re-admitted and running": {
			in:    Input{Job: aJob(), Attempt: process.Attempt{State: process.Queued, StartedAt: &t1, Runs: 1}, Pods: []*corev1.Pod{aPod("b", corev1.PodRunning, "n1", running("main"))}},
			state: process.Running, code: Running, exit: "nil", runs: 2},
		"between retries": {
			in: Input{Job: aJob(func(j *batchv1.Job) { j.Status.Failed = 1 }), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 3, "Error"))}},
			state: process.Queued, code: Restarting, reason: "exit code 3", exit: "3", runs: 1},
		"no retry is left": {
			in: Input{Job: aJob(func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(0)) }),
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 3, "Error"))}},
			state: process.Running, code: Finishing, exit: "3", runs: 1},
		"a retry is left": {
			in: Input{Job: aJob(func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(1)) }), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 3, "Error"))}},
			state: process.Queued, code: Restarting, reason: "exit code 3", exit: "3", runs: 1},
		"second try runs, the wait between was not seen": {
			in: Input{Job: aJob(func(j *batchv1.Job) { j.Status.Failed = 1 }), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", exited("main", 3, "Error")), aPod("b", corev1.PodRunning, "n1", created(t2), running("main"))}},
			state: process.Running, code: Running, exit: "3", runs: 2},
		"failed init container": {
			in: Input{Job: aJob(with(batchv1.JobFailed, "BackoffLimitExceeded", "")), Pods: []*corev1.Pod{aPod("a", corev1.PodFailed, "n1", func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
			})}},
			state: process.Failed, code: ExitNonZero, reason: "Init container fetch", exit: "nil"},
		"Job being deleted, pod gone (B50)": {
			in: Input{Job: aJob(func(j *batchv1.Job) {
				j.DeletionTimestamp, j.Finalizers = new(metav1.NewTime(t2)), []string{"foregroundDeletion"}
			}), Attempt: ranBefore},
			state: process.Queued, code: Deleting, reason: "foregroundDeletion", exit: "nil", runs: 1},
		"Job being deleted, pod runs": {
			in: Input{Job: aJob(func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.NewTime(t2)) }), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"), deleted)}},
			state: process.Running, code: Deleting, exit: "nil", runs: 1},
		"complete wins over an older running pod (B46)": {
			in: Input{Job: aJob(with(batchv1.JobComplete, "", "")), Attempt: ranBefore,
				Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}},
			state: process.Succeeded, code: Completed, exit: "0", runs: 1},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			got := Read(c.in)
			exit := "nil"
			if got.ExitCode != nil {
				exit = fmt.Sprint(*got.ExitCode)
			}
			if got.State != c.state || got.ReasonCode != c.code || exit != c.exit || got.Runs != c.runs {
				t.Errorf("got %s/%s exit %s runs %d (%s), want %s/%s exit %s runs %d",
					got.State, got.ReasonCode, exit, got.Runs, got.Reason, c.state, c.code, c.exit, c.runs)
			}
			if !strings.Contains(got.Reason, c.reason) || got.Reason == "" {
				t.Errorf("reason %q does not say %q", got.Reason, c.reason)
			}
			if got.State.Terminal() != (got.EndedAt != nil) {
				t.Errorf("state %s with end time %v", got.State, got.EndedAt)
			}
		})
	}
}

// The order in which a cache hands out pods must not matter, even within one second.
func TestReadIgnoresOrder(t *testing.T) {
	a := aPod("z", corev1.PodFailed, "n1", exited("main", 3, "Error"))
	b := aPod("a", corev1.PodRunning, "n1", running("main"))
	one := Read(Input{Job: aJob(), Pods: []*corev1.Pod{a, b}})
	two := Read(Input{Job: aJob(), Pods: []*corev1.Pod{b, a}})
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("order matters:\n%s", diff)
	}
	if one.State != process.Running {
		t.Errorf("state %s, want running", one.State)
	}
}

func TestStartedAtIsKept(t *testing.T) {
	known := t0.Add(-time.Hour)
	got := Read(Input{Job: aJob(), Attempt: process.Attempt{StartedAt: &known}, Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}})
	if got.StartedAt == nil || !got.StartedAt.Equal(known) {
		t.Errorf("started at %v, want the known %v", got.StartedAt, known)
	}
	if got = Read(Input{Job: aJob(), Pods: []*corev1.Pod{aPod("a", corev1.PodRunning, "n1", running("main"))}}); got.StartedAt == nil || !got.StartedAt.Equal(t1) {
		t.Errorf("started at %v, want %v", got.StartedAt, t1)
	}
}

// B19: a pod that came after a refusal makes the old event meaningless.
func TestOldRefusalDoesNotSpeak(t *testing.T) {
	got := Read(Input{Job: aJob(), Events: []corev1.Event{
		{Reason: "SuccessfulCreate", LastTimestamp: metav1.NewTime(t2)},
		{Reason: "FailedCreate", Message: "exceeded quota", LastTimestamp: metav1.NewTime(t1)},
	}})
	if got.ReasonCode != NoPod {
		t.Errorf("got %s, want %s", got.ReasonCode, NoPod)
	}
	if !Read(Input{Job: aJob()}).NeedsEvents {
		t.Error("a Job without pods does not ask for its events")
	}
}
