package procnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// container is one container of a pod over all its restarts. Fields below spec
// are guarded by pod.mu.
type container struct {
	pod  *pod
	spec *corev1.Container
	init bool

	state, last   corev1.ContainerState
	id            string
	restarts      int32
	process       *process
	log, previous *logFile
}

func newContainer(p *pod, spec *corev1.Container, init bool) *container {
	c := &container{pod: p, spec: spec, init: init}
	reason := "ContainerCreating"
	if len(p.spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	c.state.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	return c
}

// Times between the restarts of a container that keeps ending, as a kubelet has
// them; the first restart is immediate.
const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// keep runs the container as often as its restart policy wants, and returns when
// it will not run again or the pod has to end.
func (c *container) keep() {
	backOff := time.Duration(0)
	for c.pull() {
		began := time.Now()
		if !c.runOnce() || !c.restartable() {
			return
		}
		if time.Since(began) > 2*lastBackOff {
			backOff = 0
		}
		if backOff > 0 {
			c.wait("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", backOff, c.spec.Name, c.pod.name))
			if !c.sleep(backOff) {
				c.restoreLast()
				return
			}
		}
		backOff = min(max(2*backOff, firstBackOff), lastBackOff)
		c.pod.mu.Lock()
		c.restarts++
		c.pod.mu.Unlock()
	}
}

// pull does what the image's name means and returns whether to start.
func (c *container) pull() bool {
	image := parseImage(c.spec.Image)
	switch {
	case image.invalidName:
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name: invalid reference format", c.spec.Image)
		c.wait("InvalidImageName", message)
		c.pod.event(corev1.EventTypeWarning, "InspectFailed", "%s", message)
		<-c.pod.ctx.Done()
		return false
	case image.neverPulled:
		message := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: not found", c.spec.Image, c.spec.Image)
		c.wait("ErrImagePull", message)
		c.pod.event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", c.spec.Image, message)
		c.pod.event(corev1.EventTypeWarning, "Failed", "Error: ErrImagePull")
		if !c.sleep(time.Second) {
			return false
		}
		c.wait("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.spec.Image, message))
		c.pod.event(corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", c.spec.Image)
		<-c.pod.ctx.Done()
		return false
	case image.pullTime > 0 && c.restarts == 0:
		return c.sleep(image.pullTime)
	}
	return c.pod.ctx.Err() == nil
}

// runOnce runs the command to its end and returns false when the container never
// started and never will.
func (c *container) runOnce() bool {
	what, ok := c.prepare()
	if !ok {
		return false
	}
	dir := filepath.Join(c.pod.dir, c.spec.Name)
	log, err := newLogFile(filepath.Join(dir, "log."+strconv.Itoa(int(c.restarts))))
	if err != nil {
		c.terminated(128, "StartError", err.Error(), metav1.Now())
		return true
	}
	c.pod.mu.Lock()
	if c.pod.ctx.Err() != nil { // from here on kill would miss the process
		c.pod.mu.Unlock()
		log.finish()
		return false
	}
	if c.previous != nil {
		c.previous.remove()
	}
	c.previous, c.log = c.log, log
	process, err := c.pod.m.launcher.start(what, log)
	if err != nil {
		c.pod.mu.Unlock()
		log.finish()
		c.pod.event(corev1.EventTypeWarning, "Failed", "Error: failed to create containerd task: failed to start process: %v", err)
		c.terminated(128, "StartError", "failed to start the process: "+err.Error(), metav1.Time{Time: time.Unix(0, 0)})
		return true
	}
	started := metav1.Now()
	c.process = process
	c.id = fmt.Sprintf("process://%s-%s-%d-%d", c.pod.uid, c.spec.Name, c.restarts, process.pid)
	c.last = c.state
	if c.last.Terminated == nil {
		c.last = corev1.ContainerState{}
	}
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	c.pod.mu.Unlock()
	c.pod.touch(runningDelay)

	oom := parseImage(c.spec.Image).oom
	if oom {
		// Time enough to say something first.
		timer := time.AfterFunc(300*time.Millisecond, process.kill)
		defer timer.Stop()
	}
	exitCode := process.wait()
	c.pod.mu.Lock()
	c.process = nil
	c.pod.mu.Unlock()
	reason := "Completed"
	switch {
	case oom:
		exitCode, reason = 128+int32(syscall.SIGKILL), "OOMKilled"
	case exitCode != 0:
		reason = "Error"
	}
	message := ""
	if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && exitCode != 0 {
		message = log.lastBytes(80, 2048)
	}
	c.terminated(exitCode, reason, message, started)
	return true
}

// prepare computes what to run. As long as something it needs is missing, the
// container waits.
func (c *container) prepare() (command, bool) {
	refused := ""
	switch {
	case len(c.spec.Command)+len(c.spec.Args) == 0:
		refused = "no command specified: process nodes do not know the image's entry point; set command or args"
	case c.init && c.spec.RestartPolicy != nil:
		refused = "process nodes run no sidecars (init containers with a restartPolicy); make it a container"
	}
	if refused != "" {
		c.wait("CreateContainerError", refused)
		c.pod.event(corev1.EventTypeWarning, "Failed", "Error: %s", refused)
		<-c.pod.ctx.Done()
		return command{}, false
	}
	for {
		c.pod.mu.Lock()
		object := c.pod.object
		c.pod.mu.Unlock()
		env, err := resolveEnv(c.pod.ctx, object, c.spec, c.pod.m.sources)
		if err == nil {
			return c.build(env)
		}
		if c.pod.ctx.Err() != nil {
			return command{}, false
		}
		// The API server being away is no fault of the pod's.
		if apierrors.IsNotFound(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !isNetwork(err) {
			c.wait("CreateContainerConfigError", err.Error())
			c.pod.event(corev1.EventTypeWarning, "Failed", "Error: %v", err)
		}
		if !c.sleep(2 * time.Second) {
			return command{}, false
		}
	}
}

func (c *container) build(env *variables) (command, bool) {
	home := filepath.Join(c.pod.dir, c.spec.Name, "root")
	if err := os.MkdirAll(home, 0o755); err != nil {
		c.terminated(128, "StartError", err.Error(), metav1.Now())
		return command{}, false
	}
	argv := append(expandAll(c.spec.Command, env.values), expandAll(c.spec.Args, env.values)...)
	hostname := c.pod.spec.Hostname
	if hostname == "" {
		hostname = c.pod.name
	}
	return command{argv: argv, env: env.environ(home, hostname), dir: c.workingDir(home)}, true
}

// workingDir is a folder of the machine if there is such a one, and else one of
// that name below the container's own: nothing is made outside of it.
func (c *container) workingDir(home string) string {
	wanted := c.spec.WorkingDir
	if wanted == "" {
		return home
	}
	if info, err := os.Stat(wanted); err == nil && info.IsDir() {
		return wanted
	}
	inside := filepath.Join(home, filepath.Clean("/"+wanted))
	if os.MkdirAll(inside, 0o755) != nil {
		return home
	}
	return inside
}

func (c *container) terminated(exitCode int32, reason, message string, started metav1.Time) {
	c.pod.mu.Lock()
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, Message: message,
		StartedAt: started, FinishedAt: metav1.Now(), ContainerID: c.id,
	}}
	c.pod.mu.Unlock()
	if c.init || len(c.pod.containers) > 1 {
		// Else the end of the pod is about to be written anyway.
		c.pod.touch(runningDelay)
	}
}

// restartable says whether the container is to run again.
func (c *container) restartable() bool {
	if c.pod.ctx.Err() != nil {
		return false
	}
	switch c.pod.spec.RestartPolicy {
	case corev1.RestartPolicyAlways:
		return !c.init || !c.succeeded()
	case corev1.RestartPolicyOnFailure:
		return !c.succeeded()
	}
	return false
}

func (c *container) succeeded() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// wait shows the container as waiting.
func (c *container) wait(reason, message string) {
	c.pod.mu.Lock()
	if c.state.Terminated != nil {
		c.last = c.state
	}
	c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	c.pod.mu.Unlock()
	c.pod.touch(0)
}

// restoreLast shows the last end again: the pod ends while it waits to restart.
func (c *container) restoreLast() {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.last.Terminated != nil {
		c.state, c.last = c.last, corev1.ContainerState{}
	}
}

// sleep returns false when the pod has to end.
func (c *container) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.pod.ctx.Done():
		return false
	}
}
