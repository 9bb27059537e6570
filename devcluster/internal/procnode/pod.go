package procnode

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is one pod from its binding to the removal of its object.
type pod struct {
	m               *manager
	uid             types.UID
	namespace, name string
	dir             string
	started         metav1.Time
	// spec is the first that was seen. What may change in it later, deadlines, is
	// read from object.
	spec *corev1.PodSpec

	// ctx ends when the pod has to end: deletion, deadline, end of the node.
	ctx    context.Context
	cancel context.CancelFunc
	// ended is closed when no process of the pod is left and none will be.
	ended chan struct{}

	mu         sync.Mutex
	object     *corev1.Pod // as last seen at the API server
	containers []*container
	inits      []*container
	reason     string // of the pod, as DeadlineExceeded
	message    string
	killAt     time.Time   // when what is left is killed; zero until kill
	killTimer  *time.Timer // runs killAll at killAt
	deadline   *time.Timer // activeDeadlineSeconds
	sent       *corev1.PodStatus
	// transitions remembers when a condition last changed.
	transitions map[corev1.PodConditionType]metav1.Time
	statuses    map[corev1.PodConditionType]corev1.ConditionStatus
}

func newPod(m *manager, object *corev1.Pod) *pod {
	p := &pod{
		m: m, uid: object.UID, namespace: object.Namespace, name: object.Name,
		dir:     filepath.Join(m.dir, string(object.UID)),
		started: metav1.Now(), ended: make(chan struct{}), object: object, spec: &object.Spec,
		transitions: map[corev1.PodConditionType]metav1.Time{},
		statuses:    map[corev1.PodConditionType]corev1.ConditionStatus{},
	}
	if object.Status.StartTime != nil {
		p.started = *object.Status.StartTime
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for i := range object.Spec.InitContainers {
		p.inits = append(p.inits, newContainer(p, &object.Spec.InitContainers[i], true))
	}
	for i := range object.Spec.Containers {
		p.containers = append(p.containers, newContainer(p, &object.Spec.Containers[i], false))
	}
	return p
}

// lostContainers says whether an earlier run of this program had started the
// pod. Its processes died with that run; the pod is reported as failed.
func (p *pod) lostContainers() bool {
	before := append(append([]corev1.ContainerStatus{}, p.object.Status.InitContainerStatuses...), p.object.Status.ContainerStatuses...)
	lost := false
	for _, status := range before {
		c := p.container(status.Name)
		if c == nil {
			continue
		}
		c.restarts = status.RestartCount
		switch {
		case status.State.Terminated != nil:
			c.state = status.State
		case status.State.Running != nil:
			lost = true
			c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message:   "The container could not be located when the node was started again",
				StartedAt: status.State.Running.StartedAt, FinishedAt: metav1.Now(),
			}}
		}
	}
	if lost {
		p.reason, p.message = "NodeRestarted", "The node was started again; processes do not survive that"
	}
	return lost
}

// observe takes a newer object: the pod may be deleted, or its deadline set.
func (p *pod) observe(object *corev1.Pod) {
	p.mu.Lock()
	p.object = object
	p.mu.Unlock()
	if object.DeletionTimestamp != nil {
		grace := 30 * time.Second
		if object.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
		}
		p.kill(grace, "", "")
		p.touch(0) // the object may be all that is left
	}
	p.armDeadline()
}

// armDeadline starts, moves or stops the timer of activeDeadlineSeconds.
func (p *pod) armDeadline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	seconds := p.object.Spec.ActiveDeadlineSeconds
	if p.deadline != nil {
		p.deadline.Stop()
	}
	if seconds == nil || p.isEnded() {
		return
	}
	left := time.Until(p.started.Add(time.Duration(*seconds) * time.Second))
	p.deadline = time.AfterFunc(max(left, 0), func() {
		p.kill(p.gracePeriod(), "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
	})
}

func (p *pod) gracePeriod() time.Duration {
	if seconds := p.spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 30 * time.Second
}

// run takes the pod through its life.
func (p *pod) run() {
	p.armDeadline()
	p.touch(runningDelay)
	if p.runInits() {
		var running sync.WaitGroup
		for _, c := range p.containers {
			running.Go(c.keep)
		}
		running.Wait()
	}
	p.mu.Lock()
	if p.killTimer != nil {
		p.killTimer.Stop()
	}
	if p.deadline != nil {
		p.deadline.Stop()
	}
	close(p.ended)
	p.mu.Unlock()
	p.cancel()
	p.touch(0)
}

// runInits runs the init containers one after the other.
func (p *pod) runInits() bool {
	for _, c := range p.inits {
		c.keep()
		if !c.succeeded() {
			return false
		}
	}
	return p.ctx.Err() == nil
}

// kill makes the pod end: SIGTERM now, SIGKILL after grace. A later call can
// only shorten the time that is left.
func (p *pod) kill(grace time.Duration, reason, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded() {
		return
	}
	at := time.Now().Add(grace)
	first := p.killAt.IsZero()
	if first {
		p.reason, p.message = reason, message
	} else if !at.Before(p.killAt) {
		return
	} else {
		p.killTimer.Stop()
	}
	p.killAt = at
	p.killTimer = time.AfterFunc(grace, func() { p.signal((*process).kill) })
	p.cancel()
	if first {
		go p.signal((*process).terminate)
	}
}

// signal does something to each running process.
func (p *pod) signal(send func(*process)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all() {
		if c.process != nil {
			send(c.process)
		}
	}
}

func (p *pod) all() []*container {
	return append(append([]*container{}, p.inits...), p.containers...)
}

func (p *pod) container(name string) *container {
	for _, c := range p.all() {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}

func (p *pod) isEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// deletable says that nothing but the object is left of a deleted pod.
func (p *pod) deletable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.object.DeletionTimestamp != nil && p.isEnded()
}

// touch has the status written after a delay.
func (p *pod) touch(delay time.Duration) { p.m.dirty.AddAfter(p.uid, delay) }

// runningDelay is how long a start is kept back: a container that ends within it
// needs one write instead of two.
const runningDelay = 40 * time.Millisecond

// event records an event about the pod.
func (p *pod) event(kind, reason, format string, args ...any) {
	p.mu.Lock()
	object := p.object
	p.mu.Unlock()
	p.m.recorder.Eventf(object, kind, reason, format, args...)
}
