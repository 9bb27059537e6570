package test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPods tries everything that needs no cluster of its own, on one pair.
func TestPods(t *testing.T) {
	clusters, _ := up(t, t.TempDir(), "--name", "a", "--name", "gpu", "--gpus", "8")
	a, gpu := clusters["a"], clusters["gpu"]
	for name, test := range map[string]func(*testing.T){
		"a Job asks for GPUs":           func(t *testing.T) { gpuJob(t, gpu) },
		"no GPU, no place":              func(t *testing.T) { noGPU(t, a) },
		"exit codes":                    func(t *testing.T) { exitCodes(t, a) },
		"environment":                   func(t *testing.T) { environment(t, a) },
		"a missing Secret":              func(t *testing.T) { missingSecret(t, a) },
		"logs":                          func(t *testing.T) { logs(t, a) },
		"any bytes in the log":          func(t *testing.T) { anyBytes(t, a) },
		"follow":                        func(t *testing.T) { follow(t, a) },
		"deletion":                      func(t *testing.T) { deletion(t, a) },
		"deletion of a stubborn one":    func(t *testing.T) { stubborn(t, a) },
		"deadline":                      func(t *testing.T) { deadline(t, a) },
		"restarts on failure":           func(t *testing.T) { restarts(t, a) },
		"init containers":               func(t *testing.T) { initContainers(t, a) },
		"images with a meaning":         func(t *testing.T) { images(t, a) },
		"a command that is not there":   func(t *testing.T) { noSuchCommand(t, a) },
		"no command at all":             func(t *testing.T) { noCommand(t, a) },
		"a ServiceAccount's own access": func(t *testing.T) { serviceAccount(t, a) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func gpuJob(t *testing.T, c *cluster) {
	two := resource.MustParse("2")
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "train"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "main", Image: "any", Args: []string{"sh", "-c", "for i in 1 2 3; do echo step $i; sleep 0.2; done"},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": two}},
			}},
		}}},
	}
	if _, err := c.client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Job completes", func() bool {
		now, err := c.client.BatchV1().Jobs("default").Get(t.Context(), "train", metav1.GetOptions{})
		if err == nil {
			job = now
		}
		return job.Status.Succeeded == 1 && job.Status.CompletionTime != nil
	}, func() any { return job.Status })
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=train"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	if got := c.logs(t, pods.Items[0].Name, corev1.PodLogOptions{}); got != "step 1\nstep 2\nstep 3\n" {
		t.Errorf("log %q", got)
	}
}

func noGPU(t *testing.T, c *cluster) {
	c.create(t, "no-gpu", func(pod *corev1.Pod) {
		shell("true")(pod)
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	})
	c.await(t, "no-gpu", "unschedulable", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	})
}

func exitCodes(t *testing.T, c *cluster) {
	c.create(t, "exit-0", shell("exit 0"))
	c.create(t, "exit-42", shell("exit 42"))
	c.create(t, "exit-signal", shell("kill -11 $$$$")) // $$ is how a pod writes a dollar
	for name, want := range map[string]struct {
		phase  corev1.PodPhase
		code   int32
		reason string
	}{
		"exit-0":      {corev1.PodSucceeded, 0, "Completed"},
		"exit-42":     {corev1.PodFailed, 42, "Error"},
		"exit-signal": {corev1.PodFailed, 139, "Error"},
	} {
		end := c.awaitPhase(t, name, want.phase).Status.ContainerStatuses[0].State.Terminated
		if end.ExitCode != want.code || end.Reason != want.reason || end.StartedAt.IsZero() || end.FinishedAt.Before(&end.StartedAt) {
			t.Errorf("%s: %+v; want code %d, reason %s and both times", name, end, want.code, want.reason)
		}
	}
}

func environment(t *testing.T, c *cluster) {
	ctx := t.Context()
	_, err := c.client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "storage"}, StringData: map[string]string{"KEY": "s3cret", "URL": "file:///x"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"mode": "fast"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.create(t, "env", func(pod *corev1.Pod) {
		shell("env | sort; pwd")(pod)
		main := &pod.Spec.Containers[0]
		main.WorkingDir = "/no-such-folder/work"
		main.EnvFrom = []corev1.EnvFromSource{{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "storage"}}}}
		main.Env = []corev1.EnvVar{
			{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "mode"}}},
			{Name: "BOTH", Value: "$(POD)-$(MODE)-$$(MODE)-$(NONE)-$5"},
		}
	})
	c.awaitPhase(t, "env", corev1.PodSucceeded)
	got := c.logs(t, "env", corev1.PodLogOptions{})
	for _, want := range []string{"S_KEY=s3cret\n", "S_URL=file:///x\n", "POD=env\n", "MODE=fast\n", "BOTH=env-fast-$(MODE)-$(NONE)-$5\n", "HOSTNAME=env\n", "/no-such-folder/work\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "DEVCLUSTER") || strings.Contains(got, "GOGC") || strings.Contains(got, "USER=") {
		t.Errorf("the node's own environment leaks:\n%s", got)
	}
}

func missingSecret(t *testing.T, c *cluster) {
	c.create(t, "late", func(pod *corev1.Pod) {
		shell("echo $KEY")(pod)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key"}}}}
	})
	c.awaitWaiting(t, "late", "CreateContainerConfigError")
	_, err := c.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, StringData: map[string]string{"key": "now"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitPhase(t, "late", corev1.PodSucceeded)
}

func (c *cluster) awaitWaiting(t *testing.T, name, reason string) {
	t.Helper()
	c.await(t, name, reason, func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
	})
}

func restarts(t *testing.T, c *cluster) {
	c.create(t, "restarts", func(pod *corev1.Pod) {
		shell("if [ -e again ]; then echo second; else echo first; touch again; exit 3; fi")(pod)
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	})
	status := c.awaitPhase(t, "restarts", corev1.PodSucceeded).Status.ContainerStatuses[0]
	if status.RestartCount != 1 || status.LastTerminationState.Terminated == nil || status.LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("%+v", status)
	}
	if got := c.logs(t, "restarts", corev1.PodLogOptions{}); got != "second\n" {
		t.Errorf("log %q", got)
	}
	if got := c.logs(t, "restarts", corev1.PodLogOptions{Previous: true}); got != "first\n" {
		t.Errorf("previous log %q", got)
	}
}

func initContainers(t *testing.T, c *cluster) {
	c.create(t, "init", func(pod *corev1.Pod) {
		shell("echo main")(pod)
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "one", Image: "any", Command: []string{"sh", "-c", "sleep 0.5; echo one"}},
			{Name: "two", Image: "any", Command: []string{"sh", "-c", "echo two"}},
		}
	})
	c.create(t, "init-fails", func(pod *corev1.Pod) {
		shell("echo main")(pod)
		pod.Spec.InitContainers = []corev1.Container{{Name: "one", Image: "any", Command: []string{"false"}}}
	})
	status := c.awaitPhase(t, "init", corev1.PodSucceeded).Status
	one, two := status.InitContainerStatuses[0].State.Terminated, status.InitContainerStatuses[1].State.Terminated
	if two.StartedAt.Before(&one.FinishedAt) {
		t.Errorf("two started at %s, one ended at %s", two.StartedAt, one.FinishedAt)
	}
	if got := c.logs(t, "init", corev1.PodLogOptions{Container: "two"}); got != "two\n" {
		t.Errorf("log of two: %q", got)
	}
	failed := c.awaitPhase(t, "init-fails", corev1.PodFailed).Status
	if failed.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("main has run: %+v", failed.ContainerStatuses)
	}
}

func images(t *testing.T, c *cluster) {
	image := func(name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			shell("echo hello")(pod)
			pod.Spec.Containers[0].Image = name
		}
	}
	c.create(t, "never-pulled", image("nagelfluh.test/never-pulled"))
	c.create(t, "invalid-name", image("nagelfluh.test/invalid-name-UPPER"))
	c.create(t, "slow", image("nagelfluh.test/slow-pull:2s"))
	c.create(t, "oom", image("nagelfluh.test/oom"))
	c.awaitWaiting(t, "never-pulled", "ImagePullBackOff")
	c.awaitWaiting(t, "invalid-name", "InvalidImageName")
	slow := c.awaitPhase(t, "slow", corev1.PodSucceeded)
	if waited := slow.Status.ContainerStatuses[0].State.Terminated.StartedAt.Sub(slow.Status.StartTime.Time); waited < time.Second {
		t.Errorf("the slow pull took %s", waited)
	}
	oom := c.awaitPhase(t, "oom", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if oom.Reason != "OOMKilled" || oom.ExitCode != 137 {
		t.Errorf("oom: %+v", oom)
	}
	_, err := c.client.CoreV1().Pods("default").GetLogs("never-pulled", &corev1.PodLogOptions{}).Stream(t.Context())
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "is waiting to start") {
		t.Errorf("log of a waiting container: %v", err)
	}
	c.gone(t, "never-pulled")
}

func noSuchCommand(t *testing.T, c *cluster) {
	c.create(t, "no-such", func(pod *corev1.Pod) { pod.Spec.Containers[0].Command = []string{"no-such-program"} })
	end := c.awaitPhase(t, "no-such", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if end.ExitCode != 128 || end.Reason != "StartError" || !strings.Contains(end.Message, "no-such-program") {
		t.Errorf("%+v", end)
	}
}

func noCommand(t *testing.T, c *cluster) {
	c.create(t, "no-command", func(*corev1.Pod) {})
	c.awaitWaiting(t, "no-command", "CreateContainerError")
	c.gone(t, "no-command")
}
