package logs

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPodLog(t *testing.T) {
	crashed := waiting("main", "CrashLoopBackOff")
	crashed.LastTerminationState.Terminated = exited("main", 2).State.Terminated
	again := running("main")
	again.RestartCount, again.LastTerminationState = 1, crashed.LastTerminationState
	third := exited("main", 0)
	third.RestartCount, third.LastTerminationState = 2, crashed.LastTerminationState
	neverRan := exited("main", 128)
	neverRan.ContainerID = ""
	always := corev1.ContainerRestartPolicyAlways
	native := pod("p", running("init:proxy"), waiting("main", "PodInitializing"))
	native.Spec.InitContainers[0].RestartPolicy = &always

	for name, c := range map[string]struct {
		pods []*corev1.Pod // one after the other
		want string
	}{
		"waiting":        {[]*corev1.Pod{pod("p", waiting("main", "ContainerCreating"))}, "main/main.0:"},
		"running":        {[]*corev1.Pod{pod("p", running("main"))}, "main/main.0:started"},
		"ended":          {[]*corev1.Pod{pod("p", running("main")), pod("p", exited("main", 3))}, "main/main.0:started ended 3"},
		"never ran":      {[]*corev1.Pod{pod("p", neverRan)}, "main/main.0:ended 128"},
		"nothing back":   {[]*corev1.Pod{pod("p", exited("main", 3)), pod("p", waiting("main", "Unknown"))}, "main/main.0:started ended 3"},
		"no status":      {[]*corev1.Pod{pod("p", running("main")), {ObjectMeta: native.ObjectMeta}}, "main/main.0:started"},
		"between two":    {[]*corev1.Pod{pod("p", crashed)}, "main/main.0:started ended 2"},
		"second":         {[]*corev1.Pod{pod("p", crashed), pod("p", again)}, "main/main.0:started ended 2, main/main.1:started"},
		"one was missed": {[]*corev1.Pod{pod("p", running("main")), pod("p", third)}, "main/main.0:started, main/main.1:started ended 2, main/main.2:started ended 0"},
		"sidecars":       {[]*corev1.Pod{native}, "sidecar/proxy.0:started, main/main.0:"},
		"order": {[]*corev1.Pod{pod("p", exited("init:a", 0), again, running("z"))},
			"init/a.0:started ended 0, main/main.0:started ended 2, main/main.1:started, sidecar/z.0:started"},
	} {
		t.Run(name, func(t *testing.T) {
			known, ok := podLog(c.pods[0])
			for _, p := range c.pods[1:] {
				seen, valid := podLog(p)
				known.merge(seen)
				ok = ok && valid
				if known.merge(seen) {
					t.Error("the same again changed something")
				}
			}
			if got := show(known); got != c.want || !ok {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func show(p PodLog) string {
	var list []string
	for _, c := range p.Containers {
		s := fmt.Sprintf("%s/%s.%d:", c.Role, c.Name, c.Restart)
		if c.Started {
			s += "started "
		}
		if c.Ended {
			s += fmt.Sprintf("ended %d", *c.ExitCode)
		}
		list = append(list, strings.TrimSpace(s))
	}
	return strings.Join(list, ", ")
}

// A cluster may not choose where on this machine files are written.
func TestNamesThatAreNoFileNames(t *testing.T) {
	for _, p := range []*corev1.Pod{pod("..", running("main")), pod("a/b", running("main")), pod("", running("main")), pod("p", running("../x")), pod("p", running("a.b"))} {
		if _, ok := podLog(p); ok {
			t.Errorf("pod %q was taken", p.Name)
		}
	}
}
