package evidence

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

// oldestFirst orders pods by age. Creation times have whole seconds, so among equals those that ended come first, then
// the name decides: the order must not depend on how the pods were read.
func oldestFirst(a, b *corev1.Pod) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if ended(a) != ended(b) {
		if ended(a) {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.Name, b.Name)
}

// withGone adds the pods that ended before they were removed.
func withGone(pods, gone []*corev1.Pod) []*corev1.Pod {
	all := slices.Clone(pods)
	for _, p := range gone {
		there := slices.ContainsFunc(pods, func(q *corev1.Pod) bool { return q.UID == p.UID && q.Name == p.Name })
		if !there && (ended(p) || mainTerminated(p) != nil) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, oldestFirst)
	return all
}

// current returns the newest pod that has not ended and is not on its way out; nil: there is none. A pod that is being
// deleted still counts while its main container runs: it uses the node.
func current(pods []*corev1.Pod) *corev1.Pod {
	for _, p := range slices.Backward(pods) {
		if ended(p) || p.DeletionTimestamp != nil && !mainRunning(p) {
			continue
		}
		return p
	}
	return nil
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// lastEnded returns the newest pod that has ended.
func lastEnded(pods []*corev1.Pod) *corev1.Pod {
	for _, p := range slices.Backward(pods) {
		if ended(p) {
			return p
		}
	}
	return nil
}

// disrupted returns the condition of the newest pod when the cluster, not the work, ended or is ending it.
func disrupted(pods []*corev1.Pod) *corev1.PodCondition {
	if len(pods) == 0 {
		return nil
	}
	if c := podCondition(pods[len(pods)-1], corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return c
	}
	return nil
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func mainStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == job.MainContainer {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func mainTerminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := mainStatus(p); s != nil {
		return s.State.Terminated
	}
	return nil
}

func mainRunning(p *corev1.Pod) bool {
	s := mainStatus(p)
	return s != nil && s.State.Running != nil
}

func mainStarted(p *corev1.Pod) bool { return mainRunning(p) || mainTerminated(p) != nil }

// runningBeside names a container other than the main one that still runs; empty: none. Init containers that keep
// running (native sidecars) do not hold a pod: the kubelet stops them.
func runningBeside(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name != job.MainContainer && s.State.Running != nil {
			return s.Name
		}
	}
	return ""
}

func failedInit(p *corev1.Pod) (string, *corev1.ContainerStateTerminated) {
	for _, s := range p.Status.InitContainerStatuses {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return s.Name, t
		}
	}
	return "", nil
}

func allStatuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// startedAt returns when a main container first ran; what was known before is never made later or forgotten.
func startedAt(pods []*corev1.Pod, known *time.Time) *time.Time {
	if known != nil {
		return known
	}
	var first time.Time
	for _, p := range pods {
		s := mainStatus(p)
		if s == nil {
			continue
		}
		var at time.Time
		switch {
		case s.State.Running != nil:
			at = s.State.Running.StartedAt.Time
		case s.State.Terminated != nil:
			at = s.State.Terminated.StartedAt.Time
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return utc(first)
}

// exitCode returns that of the newest main container that has ended, else the known one.
func exitCode(pods []*corev1.Pod, known *int32) *int32 {
	for _, p := range slices.Backward(pods) {
		if t := mainTerminated(p); t != nil {
			return new(t.ExitCode)
		}
	}
	return known
}

func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}
