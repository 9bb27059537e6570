package evidence

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// live fills in the state of a Job that has not ended.
func live(f *Finding, in Input, pods []*corev1.Pod) {
	f.State = process.Queued
	pod := current(pods)
	switch {
	// A suspended Job has no pod: one that runs is on its way out, or was seen before the Job that was resumed for it. As long
	// as it runs, so does the work.
	case in.Job.Spec.Suspend != nil && *in.Job.Spec.Suspend && (pod == nil || !mainRunning(pod)):
		suspended(f, in)
	case pod == nil:
		noPod(f, in, pods)
	default:
		podState(f, in, pod)
	}
	if in.Job.DeletionTimestamp != nil && f.ReasonCode != SidecarHold {
		f.ReasonCode, f.Reason = Deleting, "The Job is being deleted on the cluster."
		if len(in.Job.Finalizers) > 0 && pod == nil {
			f.Reason = "The Job is being deleted on the cluster; it waits for " + strings.Join(in.Job.Finalizers, ", ") + "."
		}
	}
}

func noPod(f *Finding, in Input, pods []*corev1.Pod) {
	f.NeedsEvents = in.Events == nil
	if e := latestEvent(in.Events, "FailedCreate", "SuccessfulCreate"); e != nil && e.Reason == "FailedCreate" {
		f.ReasonCode = PodsRefused
		f.Reason = withDetail("The cluster refuses the pod", e.Message)
		return
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if condition(in.Job, kind) != nil {
			finishing(f, in)
			return
		}
	}
	switch {
	case disrupted(pods) != nil:
		f.ReasonCode, f.Reason = Preempted, withDetail("The pod was disrupted and a new one follows", disrupted(pods).Message)
	case len(pods) > 0 || in.Job.Status.Failed > 0:
		if last := lastEnded(pods); last != nil && last.Status.Phase == corev1.PodSucceeded {
			finishing(f, in)
			return
		}
		if !retries(in.Job, pods) {
			finishing(f, in)
			return
		}
		f.ReasonCode, f.Reason = Restarting, "A pod failed; the next one has not started."
		if f.ExitCode != nil && *f.ExitCode != 0 {
			f.Reason = fmt.Sprintf("A pod failed with exit code %d; the next one has not started.", *f.ExitCode)
		}
	case f.StartedAt != nil:
		f.ReasonCode, f.Reason = Preempted, "The pod is gone before it ended; a new one follows."
	default:
		f.ReasonCode, f.Reason = NoPod, "The Job exists; its pod does not yet."
	}
}

// retries says whether another pod follows those that failed. The cluster says so only when it gives up.
func retries(j *batchv1.Job, pods []*corev1.Pod) bool {
	if j.Spec.BackoffLimit == nil {
		return true
	}
	failed := int32(0)
	for _, p := range pods {
		// What the cluster itself ended does not eat retries.
		if c := podCondition(p, corev1.DisruptionTarget); p.Status.Phase == corev1.PodFailed && (c == nil || c.Status != corev1.ConditionTrue) {
			failed++
		}
	}
	return max(failed, j.Status.Failed) <= *j.Spec.BackoffLimit
}

// finishing keeps the last state: the pods have ended and the Job's result is about to be written.
func finishing(f *Finding, in Input) {
	f.ReasonCode, f.Reason = Finishing, "The pod has ended; the cluster is about to write the result."
	f.NeedsEvents = false
	if in.Attempt.State == process.Running || f.StartedAt != nil {
		f.State = process.Running
	}
}

// podState reads the pod that is neither ended nor gone.
func podState(f *Finding, in Input, pod *corev1.Pod) {
	if t := mainTerminated(pod); t != nil {
		if holder := runningBeside(pod); holder != "" {
			f.State, f.ReasonCode = process.Running, SidecarHold
			f.Reason = fmt.Sprintf("The main container has ended with exit code %d; still active because container %s runs.", t.ExitCode, holder)
			return
		}
		finishing(f, in)
		return
	}
	if mainRunning(pod) {
		f.State, f.ReasonCode, f.Reason = process.Running, Running, "Running."
		if pod.Spec.NodeName != "" {
			f.Reason = fmt.Sprintf("Running on node %s.", pod.Spec.NodeName)
		}
		return
	}
	if pod.Spec.NodeName == "" {
		f.ReasonCode, f.Reason = Scheduling, "The scheduler has not placed the pod yet."
		if c := podCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			f.Reason = withDetail("The scheduler has not placed the pod", c.Message)
			if c.Reason == corev1.PodReasonUnschedulable {
				f.ReasonCode, f.Reason = Unschedulable, withDetail("No node takes the pod", c.Message)
			}
		}
		return
	}
	f.ReasonCode, f.Reason = waiting(pod)
}

// waiting says why no container of a placed pod runs. An init container that is stuck speaks before the main one.
func waiting(pod *corev1.Pod) (code, sentence string) {
	var plain string
	for _, s := range allStatuses(pod) {
		w := s.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
			return ImagePull, withDetail(fmt.Sprintf("Image %s cannot be pulled (%s)", s.Image, w.Reason), w.Message)
		case "InvalidImageName":
			return InvalidImage, withDetail(fmt.Sprintf("%q is no image name", s.Image), w.Message)
		case "CreateContainerConfigError":
			return ContainerConfig, withDetail("Container "+s.Name+" cannot be made as configured", w.Message)
		case "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "PostStartHookError":
			return ContainerWaiting, withDetail(fmt.Sprintf("Container %s does not start (%s)", s.Name, w.Reason), w.Message)
		case "", "ContainerCreating", "PodInitializing":
		default:
			plain = withDetail(fmt.Sprintf("Container %s waits (%s)", s.Name, w.Reason), w.Message)
		}
	}
	if plain != "" {
		return ContainerWaiting, plain
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Running != nil {
			return ContainerStart, fmt.Sprintf("Init container %s runs on node %s.", s.Name, pod.Spec.NodeName)
		}
	}
	return ContainerStart, fmt.Sprintf("Node %s prepares the container.", pod.Spec.NodeName)
}

func latestEvent(events []corev1.Event, reasons ...string) *corev1.Event {
	var last *corev1.Event
	for i := range events {
		e := &events[i]
		for _, r := range reasons {
			if e.Reason == r && (last == nil || eventTime(e).After(eventTime(last))) {
				last = e
			}
		}
	}
	return last
}
