package test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
