package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trimMeta keeps what tells an object apart and whether it is on its way out.
func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers,
	}
}

// trimJob copies what the evidence of an attempt needs of its Job. The copy shares nothing with the whole answer of the
// API server, which can be freed.
func trimJob(j *batchv1.Job) *batchv1.Job {
	t := &batchv1.Job{ObjectMeta: trimMeta(j.ObjectMeta), Status: j.Status}
	t.Spec.Suspend, t.Spec.BackoffLimit = j.Spec.Suspend, j.Spec.BackoffLimit
	t.Status.UncountedTerminatedPods = nil
	return t
}

// trimPod copies what the evidence and the log follower need of a pod.
func trimPod(p *corev1.Pod) *corev1.Pod {
	t := &corev1.Pod{ObjectMeta: trimMeta(p.ObjectMeta)}
	t.Spec.NodeName = p.Spec.NodeName
	t.Spec.InitContainers, t.Spec.Containers = trimContainers(p.Spec.InitContainers), trimContainers(p.Spec.Containers)
	t.Status = corev1.PodStatus{
		Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message, StartTime: p.Status.StartTime,
		InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses), ContainerStatuses: trimStatuses(p.Status.ContainerStatuses),
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget {
			t.Status.Conditions = append(t.Status.Conditions, c)
		}
	}
	return t
}

func trimContainers(in []corev1.Container) []corev1.Container {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i, c := range in {
		out[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
	}
	return out
}

func trimStatuses(in []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(in))
	for i, s := range in {
		out[i] = corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount,
		}
	}
	return out
}
