package procnode

import (
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusPatch returns what to send to bring the API server's status up to date,
// or nil, and the status that it will then have.
func (p *pod) statusPatch() ([]byte, *corev1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status()
	if p.sent != nil && equality.Semantic.DeepEqual(p.sent, status) {
		return nil, nil
	}
	// The UID makes the server refuse the patch for a later pod of that name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.uid},
		"status":   status,
	})
	if err != nil {
		logf("pod %s/%s: encode its status: %v", p.namespace, p.name, err)
		return nil, nil
	}
	return patch, status
}

func (p *pod) statusSent(status *corev1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = status
}

// status computes the pod's status from its containers.
func (p *pod) status() *corev1.PodStatus {
	status := &corev1.PodStatus{
		Phase:     p.phase(),
		Reason:    p.reason,
		Message:   p.message,
		StartTime: &p.started,
		HostIP:    loopback,
		HostIPs:   []corev1.HostIP{{IP: loopback}},
		PodIP:     loopback,
		PodIPs:    []corev1.PodIP{{IP: loopback}},
	}
	initialized, ready := true, true
	var unready []string
	for _, c := range p.inits {
		initialized = initialized && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
		status.InitContainerStatuses = append(status.InitContainerStatuses, c.status())
	}
	for _, c := range p.containers {
		if c.state.Running == nil {
			ready = false
			unready = append(unready, c.spec.Name)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, c.status())
	}
	reason, message := "", ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason, message = "ContainersNotReady", "containers with unready status: ["+strings.Join(unready, " ")+"]"
	}
	notInitialized := ""
	if !initialized {
		notInitialized = "ContainersNotInitialized"
	}
	status.Conditions = []corev1.PodCondition{
		p.condition(corev1.PodInitialized, initialized, notInitialized, ""),
		p.condition(corev1.PodReady, ready, reason, message),
		p.condition(corev1.ContainersReady, ready, reason, message),
		p.condition(corev1.PodScheduled, true, "", ""),
	}
	return status
}

func (p *pod) condition(kind corev1.PodConditionType, is bool, reason, message string) corev1.PodCondition {
	value := corev1.ConditionFalse
	if is {
		value = corev1.ConditionTrue
	}
	if p.statuses[kind] != value {
		p.statuses[kind] = value
		p.transitions[kind] = metav1.Now()
		// The scheduler has set this one before; its time is the true one.
		for _, known := range p.object.Status.Conditions {
			if known.Type == kind && known.Status == value {
				p.transitions[kind] = known.LastTransitionTime
			}
		}
	}
	return corev1.PodCondition{Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: p.transitions[kind]}
}

func (p *pod) phase() corev1.PodPhase {
	if p.isEnded() {
		if p.reason != "" {
			return corev1.PodFailed
		}
		for _, c := range p.all() {
			if c.state.Terminated == nil || c.state.Terminated.ExitCode != 0 {
				return corev1.PodFailed
			}
		}
		return corev1.PodSucceeded
	}
	for _, c := range p.containers {
		if c.state.Running != nil || c.state.Terminated != nil || c.last.Terminated != nil {
			return corev1.PodRunning
		}
	}
	return corev1.PodPending
}

func (c *container) status() corev1.ContainerStatus {
	running := c.state.Running != nil
	status := corev1.ContainerStatus{
		Name:         c.spec.Name,
		Image:        c.spec.Image,
		State:        *c.state.DeepCopy(),
		RestartCount: c.restarts,
		ContainerID:  c.id,
		Started:      &running,
		Ready:        running,
	}
	if c.restarts > 0 {
		status.LastTerminationState = *c.last.DeepCopy()
	}
	if c.init {
		status.Ready = c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
	}
	return status
}

// isNetwork says that the API server was not reached at all.
func isNetwork(err error) bool {
	var urlError *url.Error
	var netError net.Error
	return errors.As(err, &urlError) || errors.As(err, &netError)
}
