package test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKilledLeavesNothing kills the supervisor, and in a second run a node, with
// a pod whose processes ignore everything that can be ignored.
func TestKilledLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	clusters, supervisor := up(t, dir, "--name", "a")
	clusters["a"].create(t, "sleeper", shell("trap '' TERM INT HUP; sleep 87651 & (sleep 87652; true) & wait"))
	running := func() []string { return append(commands(t, dir), commands(t, "sleep 8765")...) }
	eventually(t, "it sleeps", func() bool { return len(commands(t, "sleep 8765")) >= 3 }, func() any { return running() })
	if err := supervisor.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "nothing is left", func() bool { return len(running()) == 0 }, func() any { return running() })
	t.Logf("everything had ended %s after SIGKILL", time.Since(began).Round(10*time.Millisecond))
	_ = supervisor.Wait()

	// The next one starts in the same folder, over what the killed one left.
	clusters, supervisor = up(t, dir, "--name", "a")
	if _, err := clusters["a"].client.CoreV1().Pods("default").Get(t.Context(), "sleeper", metav1.GetOptions{}); err == nil {
		t.Error("the new cluster has the old one's pod")
	}

	// A node that dies takes its pods' processes along and comes back.
	clusters["a"].create(t, "lost", shell("trap '' TERM; sleep 87653 & wait"))
	clusters["a"].awaitPhase(t, "lost", corev1.PodRunning)
	eventually(t, "it sleeps", func() bool { return len(commands(t, "sleep 87653")) >= 1 }, func() any { return "" })
	for _, line := range commands(t, "process-nodes --dir "+dir) {
		if err := exec.Command("kill", "-9", strings.Fields(line)[0]).Run(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the pod's processes end", func() bool { return len(commands(t, "sleep 87653")) == 0 }, func() any { return "" })
	clusters["a"].awaitPhase(t, "lost", corev1.PodFailed)

	if err := supervisor.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if left := running(); len(left) > 0 {
		t.Errorf("after SIGINT there are left: %q", left)
	}
	if _, err := os.Stat(dir + "/a"); err == nil {
		t.Error("after SIGINT the cluster's files are left")
	}
}

// TestDetached tries the commands that speak to a running supervisor.
func TestDetached(t *testing.T) {
	dir := t.TempDir()
	devcluster := func(args ...string) (string, error) {
		output, err := exec.Command(binary(t), append(args, "--dir", dir)...).CombinedOutput()
		return string(output), err
	}
	ready, err := devcluster("up", "--name", "a", "--detach")
	if err != nil {
		t.Fatalf("%v: %s", err, ready)
	}
	t.Cleanup(func() { _, _ = devcluster("down") })
	name, kubeconfig, found := strings.Cut(strings.TrimSpace(ready), "\t")
	if !found || name != "a" {
		t.Fatalf("ready line %q", ready)
	}
	c := &cluster{client: client(t, kubeconfig)}
	if output, err := devcluster("up", "--name", "b"); err == nil || !strings.Contains(output, "in use") {
		t.Errorf("a second one in the same folder: %v: %s", err, output)
	}

	c.create(t, "survivor", shell("sleep 3; echo done"))
	c.awaitPhase(t, "survivor", corev1.PodRunning)
	if output, err := devcluster("stop-apiserver", "a"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if _, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the stopped API server answers")
	}
	if output, err := devcluster("status"); err != nil || !strings.Contains(output, "apiserver-stopped") {
		t.Errorf("status: %v: %s", err, output)
	}
	time.Sleep(4 * time.Second)
	if output, err := devcluster("start-apiserver", "a"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	c.awaitPhase(t, "survivor", corev1.PodSucceeded)

	if output, err := devcluster("restart", "a"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	c.create(t, "after", shell("true"))
	c.awaitPhase(t, "after", corev1.PodSucceeded)
	c.awaitPhase(t, "survivor", corev1.PodSucceeded)

	if output, err := devcluster("down"); err != nil {
		t.Errorf("down: %v: %s", err, output)
	}
	if left := commands(t, dir); len(left) > 0 {
		t.Errorf("after down there are left: %q", left)
	}
	if output, err := devcluster("down"); err != nil || !strings.Contains(output, "nothing is running") {
		t.Errorf("down again: %v: %s", err, output)
	}
}
