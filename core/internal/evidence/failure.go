package evidence

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// failure names the cause of a failed Job: what its last pod says is nearer to the cause than what the Job says.
func failure(c *batchv1.JobCondition, pod *corev1.Pod, exit *int32) (code, sentence string) {
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		return DeadlineExceeded, "The work ran longer than its limit."
	}
	if pod != nil {
		if code, sentence = podFailure(pod); code != "" {
			return code, sentence
		}
	}
	if exit != nil && *exit != 0 {
		return ExitNonZero, fmt.Sprintf("The work ended with exit code %d.", *exit)
	}
	if c.Reason == batchv1.JobReasonBackoffLimitExceeded {
		return BackoffExceeded, "The work failed as often as its retries allow."
	}
	return JobFailed, withDetail("Kubernetes ended the Job: "+c.Reason, c.Message)
}

// podFailure says what a pod that has failed ended by, as far as that is more than an exit code: empty when it is not.
func podFailure(pod *corev1.Pod) (code, sentence string) {
	switch reason := pod.Status.Reason; {
	case reason == "DeadlineExceeded":
		return DeadlineExceeded, "The work ran longer than its limit."
	case reason == "Evicted" && ownLimit(pod.Status.Message):
		return StorageLimit, withDetail("The work used more local disk than its limit", pod.Status.Message)
	case reason == "Evicted":
		return Evicted, withDetail("The node evicted the pod", pod.Status.Message)
	case reason == "NodeLost" || reason == "NodeShutdown" || reason == "Terminated" || reason == "Shutdown":
		return NodeLost, withDetail(fmt.Sprintf("Node %s went away under the pod", pod.Spec.NodeName), pod.Status.Message)
	case strings.HasPrefix(reason, "OutOf") || reason == "UnexpectedAdmissionError" || reason == "NodeAffinity" || reason == "AdmissionFailed":
		return NodeRefused, withDetail(fmt.Sprintf("Node %s refused the pod (%s)", pod.Spec.NodeName, reason), pod.Status.Message)
	}
	t := mainTerminated(pod)
	if t != nil && t.Reason == "OOMKilled" {
		return OOMKilled, fmt.Sprintf("The work used more memory than its limit and was killed (exit code %d).", t.ExitCode)
	}
	killed := t == nil || t.ExitCode == 137 || t.ExitCode == 143 // by a signal that the work did not send itself
	if c := podCondition(pod, corev1.DisruptionTarget); killed && c != nil && c.Status == corev1.ConditionTrue {
		if c.Reason == "DeletionByTaintManager" || c.Reason == "DeletionByPodGC" {
			return NodeLost, withDetail(fmt.Sprintf("Node %s went away under the pod", pod.Spec.NodeName), c.Message)
		}
		return Disrupted, withDetail("The cluster ended the pod", c.Message)
	}
	if killed && pod.DeletionTimestamp != nil {
		if t == nil {
			return PodDeleted, "Somebody deleted the pod."
		}
		return PodDeleted, fmt.Sprintf("Somebody deleted the pod, which ended it with exit code %d.", t.ExitCode)
	}
	if name, t := failedInit(pod); t != nil {
		return ExitNonZero, fmt.Sprintf("Init container %s ended with exit code %d.", name, t.ExitCode)
	}
	return "", ""
}

// ownLimit says whether a kubelet's message on an eviction is that the pod used more of the disk than it asked for, and not
// that the node is short of something.
func ownLimit(message string) bool {
	return strings.Contains(message, "exceeded its local ephemeral storage limit") ||
		strings.Contains(message, "exceeds the total limit of containers") ||
		strings.Contains(message, "exceeds the limit")
}
