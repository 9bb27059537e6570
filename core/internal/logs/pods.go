package logs

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// podLog reads what a pod says about its containers. ok is false for a pod whose names no API server would accept: they
// become file names here.
func podLog(pod *corev1.Pod) (log PodLog, ok bool) {
	if len(validation.IsDNS1123Subdomain(pod.Name)) > 0 {
		return PodLog{}, false
	}
	log = PodLog{Name: pod.Name, UID: string(pod.UID), CreatedAt: pod.CreationTimestamp.UTC()}
	add := func(c corev1.Container, role Role, statuses []corev1.ContainerStatus) {
		if len(validation.IsDNS1123Label(c.Name)) > 0 {
			ok = false
			return
		}
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i < 0 {
			log.Containers = append(log.Containers, ContainerLog{Name: c.Name, Role: role})
			return
		}
		log.Containers = append(log.Containers, instances(c.Name, role, statuses[i])...)
	}
	ok = true
	for _, c := range pod.Spec.InitContainers {
		role := RoleInit
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			role = RoleSidecar
		}
		add(c, role, pod.Status.InitContainerStatuses)
	}
	for _, c := range pod.Spec.Containers {
		role := RoleSidecar
		if c.Name == MainContainer {
			role = RoleMain
		}
		add(c, role, pod.Status.ContainerStatuses)
	}
	return log, ok
}

// instances are those of a container that the cluster still knows: the present one and the one before it.
func instances(name string, role Role, s corev1.ContainerStatus) []ContainerLog {
	c := ContainerLog{Name: name, Role: role, Restart: s.RestartCount}
	last := s.LastTerminationState.Terminated
	if s.State.Running == nil && s.State.Terminated == nil {
		// Waiting, perhaps for its next instance; the count goes up when that one starts.
		if last != nil {
			return []ContainerLog{terminated(c, last)}
		}
		if s.State.Waiting != nil {
			c.Reason = s.State.Waiting.Reason
		}
		return []ContainerLog{c}
	}
	var list []ContainerLog
	if last != nil && s.RestartCount > 0 {
		list = append(list, terminated(ContainerLog{Name: name, Role: role, Restart: s.RestartCount - 1}, last))
	}
	if t := s.State.Terminated; t != nil {
		c = terminated(c, t)
		// A container that the kubelet gave up on before it ran is terminated too, without a start.
		c.Started = s.ContainerID != "" || !t.StartedAt.IsZero()
	} else {
		c.Started = true
	}
	return append(list, c)
}

func terminated(c ContainerLog, t *corev1.ContainerStateTerminated) ContainerLog {
	code := t.ExitCode
	c.Started, c.Ended, c.ExitCode, c.Reason = true, true, &code, t.Reason
	return c
}

// merge takes what is newly known of a pod into what is known; it returns whether anything changed. What was once seen
// stays: a status that a kubelet lost takes back neither a start nor an end.
func (p *PodLog) merge(seen PodLog) bool {
	changed := false
	for _, c := range seen.Containers {
		i := slices.IndexFunc(p.Containers, func(have ContainerLog) bool { return have.Name == c.Name && have.Restart == c.Restart })
		if i < 0 {
			p.insert(c)
			changed = true
			continue
		}
		have := &p.Containers[i]
		if have.Ended || have.Started == c.Started && have.Ended == c.Ended && have.Reason == c.Reason {
			continue
		}
		have.Started = have.Started || c.Started
		have.Ended, have.ExitCode, have.Reason = c.Ended, c.ExitCode, c.Reason
		changed = true
	}
	return changed
}

// insert puts an instance behind the last earlier one of its container, or at the end.
func (p *PodLog) insert(c ContainerLog) {
	at := len(p.Containers)
	for i, have := range p.Containers {
		if have.Name == c.Name {
			if have.Restart > c.Restart {
				at = i
				break
			}
			at = i + 1
		}
	}
	p.Containers = slices.Insert(p.Containers, at, c)
}

// superseded says whether a later instance of the container is known.
func (p *PodLog) superseded(name string, restart int32) (by int32, ok bool) {
	for _, c := range p.Containers {
		if c.Name == name && c.Restart > restart {
			by, ok = max(by, c.Restart), true
		}
	}
	return by, ok
}

func sortPods(pods []PodLog) {
	slices.SortStableFunc(pods, func(a, b PodLog) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
}
