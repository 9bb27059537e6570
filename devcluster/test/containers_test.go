package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A node with containers leaves no process, mount, network device, cgroup, firewall rule or file outside of its folder,
// whether its supervisor is stopped or killed while a pod runs.
func TestContainersLeaveNothing(t *testing.T) {
	if why := noContainers(filepath.Dir(binary(t))); why != "" {
		if os.Getenv("NAGELFLUH_REQUIRE_CONTAINERS") == "1" {
			t.Fatal("nodes with containers: " + why)
		}
		t.Skip("skipped: nodes with containers: " + why)
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
			before := footprint(t)
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
			for _, kind := range []string{"link veth", "/run/containerd/s/", "/var/lib/cni/results/", "/var/log/containers/", "cgroup "} {
				if !slices.ContainsFunc(added(before, footprint(t)), func(s string) bool { return strings.HasPrefix(s, kind) }) {
					t.Errorf("a running pod adds nothing like %q: the test shows nothing of it", kind)
				}
			}
			if err := process.Process.Signal(end.signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing is left", func() bool {
				mounts, _ := os.ReadFile("/proc/self/mounts")
				return len(commands(t, "sleep 87654")) == 0 && len(commands(t, dir)) == 0 && !strings.Contains(string(mounts), dir) && len(bridges(t)) == 0 &&
					len(added(before, footprint(t))) == 0
			}, func() any {
				mounts, _ := os.ReadFile("/proc/self/mounts")
				return []any{commands(t, "sleep 87654"), commands(t, dir), strings.Count(string(mounts), dir), bridges(t), added(before, footprint(t))}
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

// noContainers says why there can be no node with containers here; empty: there can.
func noContainers(bin string) string {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return "they need Linux and root"
	}
	for _, file := range []string{filepath.Join(bin, "containerd", "containerd"), filepath.Join(bin, "containerd", "containerd-shim-runc-v2"), filepath.Join(bin, "containerd", "ctr"), "/usr/lib/cni/bridge"} {
		if _, err := os.Stat(file); err != nil {
			return file + " is missing: run devcluster/containerd.sh"
		}
	}
	for _, program := range []string{"runc", "iptables", "ip", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed: run devcluster/containerd.sh"
		}
	}
	return ""
}

// footprint is what nodes with containers have on the machine outside of their folders, one thing a line.
func footprint(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{
		"/run/netns/*", "/run/containerd/s/*", "/run/containerd/runc/k8s.io/*", "/run/containerd/io.containerd.*/*",
		"/var/lib/cni/*/*", "/var/log/containers/*", "/var/log/pods/*", "/var/lib/kubelet/*",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io/*", "/sys/fs/cgroup/*/k8s.io/*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				all = append(all, "cgroup "+dir)
			}
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		all = append(all, "link "+l.Name)
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"filter", "nat", "mangle"} {
			out, _ := exec.Command(program, "-t", table, "-S").Output() // a table that this kernel does not have holds nothing
			for line := range strings.Lines(string(out)) {
				all = append(all, program+" "+table+" "+strings.TrimSpace(line))
			}
		}
	}
	return all
}

func added(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(s string) bool { return slices.Contains(before, s) })
}
