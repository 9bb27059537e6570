package test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A node with containers leaves no process, mount or network device, whether its supervisor is stopped or killed.
func TestContainersLeaveNothing(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(binary(t)), "containerd", "containerd")); err != nil || os.Geteuid() != 0 {
		if os.Getenv("NAGELFLUH_REQUIRE_CONTAINERS") == "1" {
			t.Fatal(err)
		}
		t.Skip("skipped: nodes with containers need root and what devcluster/containerd.sh builds")
	}
	for _, end := range []struct {
		name   string
		signal os.Signal
	}{{"stopped", os.Interrupt}, {"killed", os.Kill}} {
		t.Run(end.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "dct-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			clusters, process := up(t, dir, "--name", "real", "--containers")
			bridge := bridges(t)
			if len(bridge) == 0 {
				t.Fatal("there is no bridge: the test shows nothing")
			}
			clusters["real"].create(t, "sleeper", func(p *corev1.Pod) {
				shell("sleep 87654")(p)
				p.Spec.Containers[0].Image = "devcluster.local/busybox:1"
			})
			eventually(t, "it sleeps", func() bool { return len(commands(t, "sleep 87654")) > 0 }, func() any { return "" })
			if err := process.Process.Signal(end.signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing is left", func() bool {
				mounts, _ := os.ReadFile("/proc/self/mounts")
				return len(commands(t, "sleep 87654")) == 0 && len(commands(t, dir)) == 0 && !strings.Contains(string(mounts), dir) && len(bridges(t)) == 0
			}, func() any {
				mounts, _ := os.ReadFile("/proc/self/mounts")
				return []any{commands(t, "sleep 87654"), commands(t, dir), strings.Count(string(mounts), dir), bridges(t)}
			})
		})
	}
}

// bridges are the network devices of nodes with containers.
func bridges(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if strings.HasPrefix(i.Name, "ngf") {
			names = append(names, i.Name)
		}
	}
	return names
}
