package test

import (
	"bytes"
	"io"
	"regexp"
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

func logs(t *testing.T, c *cluster) {
	c.create(t, "lines", shell("for i in 1 2 3; do echo out $i; echo err $i >&2; done; sleep 2; printf last"))
	c.awaitPhase(t, "lines", corev1.PodSucceeded)
	one, zero, bytes := int64(2), int64(0), int64(9)
	for name, test := range map[string]struct {
		options corev1.PodLogOptions
		want    string
	}{
		"all":        {corev1.PodLogOptions{}, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nlast"},
		"tail":       {corev1.PodLogOptions{TailLines: &one}, "err 3\nlast"},
		"tail of 0":  {corev1.PodLogOptions{TailLines: &zero}, ""},
		"bytes":      {corev1.PodLogOptions{LimitBytes: &bytes}, "out 1\nerr"},
		"since then": {corev1.PodLogOptions{SinceSeconds: &one}, "last"},
	} {
		if name == "since then" {
			time.Sleep(300 * time.Millisecond)
		}
		if got := c.logs(t, "lines", test.options); got != test.want {
			t.Errorf("%s: %q; want %q", name, got, test.want)
		}
	}
	stamped := regexp.MustCompile(`(?m)\A(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (out|err) \d\n){6}\S+Z last\z`)
	if got := c.logs(t, "lines", corev1.PodLogOptions{Timestamps: true}); !stamped.MatchString(got) {
		t.Errorf("with times: %q", got)
	}
}

func anyBytes(t *testing.T, c *cluster) {
	c.create(t, "bytes", shell(`printf 'a\000\377\r\n'; head -c 5000000 /dev/zero | tr '\0' x; echo; printf 'end\r'`))
	c.awaitPhase(t, "bytes", corev1.PodSucceeded)
	want := "a\x00\xff\r\n" + strings.Repeat("x", 5_000_000) + "\nend\r"
	if got := c.logs(t, "bytes", corev1.PodLogOptions{}); got != want {
		t.Errorf("%d bytes came, %d were written", len(got), len(want))
	}
	if got := c.logs(t, "bytes", corev1.PodLogOptions{Timestamps: true}); len(got) != len(want)+3*31 {
		t.Errorf("with times: %d bytes more; want those of 3 lines", len(got)-len(want))
	}
}

func follow(t *testing.T, c *cluster) {
	c.create(t, "follow", shell("for i in 1 2 3 4 5; do echo $i; sleep 0.3; done"))
	c.await(t, "follow", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	stream, err := c.client.CoreV1().Pods("default").GetLogs("follow", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got bytes.Buffer
	reads := 0
	buffer := make([]byte, 100)
	for {
		n, err := stream.Read(buffer)
		got.Write(buffer[:n])
		if n > 0 {
			reads++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != "1\n2\n3\n4\n5\n" || reads < 2 {
		t.Errorf("%q in %d pieces", got.String(), reads)
	}
	end := c.awaitPhase(t, "follow", corev1.PodSucceeded).Status.ContainerStatuses[0].State.Terminated.FinishedAt
	if late := time.Since(end.Time); late > 5*time.Second {
		t.Errorf("the follow ended %s after the container", late)
	}
}

// gone waits until the pod's object is gone and returns how long that took.
func (c *cluster) gone(t *testing.T, name string) time.Duration {
	t.Helper()
	began := time.Now()
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" is gone", func() bool {
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return "" })
	return time.Since(began)
}

func deletion(t *testing.T, c *cluster) {
	c.create(t, "sleeper", shell("sleep 76543 & sleep 76544; wait"))
	eventually(t, "it sleeps", func() bool { return len(commands(t, "sleep 7654")) >= 2 }, func() any { return "" })
	took := c.gone(t, "sleeper")
	if left := commands(t, "sleep 7654"); len(left) > 0 {
		t.Errorf("the object is gone, and these still run: %q", left)
	}
	if took > 4*time.Second {
		t.Errorf("took %s: SIGTERM was enough, the grace period need not pass", took)
	}
}

func stubborn(t *testing.T, c *cluster) {
	c.create(t, "stubborn", shell("trap '' TERM; echo up; while true; do sleep 0.1; done"))
	eventually(t, "it runs", func() bool {
		text, err := c.client.CoreV1().Pods("default").GetLogs("stubborn", &corev1.PodLogOptions{}).DoRaw(t.Context())
		return err == nil && string(text) == "up\n"
	}, func() any { return "" })
	if took := c.gone(t, "stubborn"); took < 4*time.Second || took > 20*time.Second {
		t.Errorf("took %s; want the 5 s of grace and then SIGKILL", took)
	}
}

func deadline(t *testing.T, c *cluster) {
	one := int64(1)
	c.create(t, "deadline", func(pod *corev1.Pod) {
		shell("sleep 600")(pod)
		pod.Spec.ActiveDeadlineSeconds = &one
	})
	pod := c.awaitPhase(t, "deadline", corev1.PodFailed)
	if pod.Status.Reason != "DeadlineExceeded" || pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != 143 {
		t.Errorf("%+v", pod.Status)
	}
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
