package containernode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// argument is the first of two with which the binary becomes a cleaner; the
// other describes the node.
const argument = "devcluster-cleaner"

// A cleaner waits for the end of its node, even by SIGKILL, and removes what
// outlives a process: containers, mounts and network namespaces, cgroups, files
// elsewhere and the bridge.
func init() {
	if len(os.Args) == 3 && os.Args[1] == argument {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		var n node
		if err := json.Unmarshal([]byte(os.Args[2]), &n); err != nil || n.Dir == "" {
			os.Exit(2)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		if err := n.clean(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// cleaner is the node's end of the pipe.
type cleaner struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

func startCleaner(n node) (*cleaner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cleaner: find this binary: %w", err)
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, argument, string(text))
	cmd.Stderr = os.Stderr // the node's log
	// Its own session: whoever kills the node's group does not kill the cleaner.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cleaner: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cleaner: start: %w", err)
	}
	return &cleaner{pipe, cmd}, nil
}

func (c *cleaner) close() {
	c.pipe.Close()
	_ = c.cmd.Wait()
}

// clean removes everything of the node that is not a file in its folder.
func (n node) clean() error {
	// Who makes and removes containers ends first: then no more come, and what
	// is noted of them stays.
	errs := []error{n.end(n.daemon)}
	cgroups, files := n.cgroups(), n.files()
	errs = append(errs, n.end(n.owns))
	for _, path := range n.mounts() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	for _, path := range append(cgroups, files...) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, dir := range cgroups {
		_ = os.Remove(filepath.Dir(dir)) // shared with other nodes: refused while it is not empty
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", n.bridge())); err == nil {
		if out, err := exec.Command("ip", "link", "delete", n.bridge()).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete the bridge %s: %w: %s", n.bridge(), err, out))
		}
	}
	return errors.Join(errs...)
}

// end kills processes, and all that descends from them, until none is left.
func (n node) end(which func(args []string) bool) error {
	for end := time.Now().Add(10 * time.Second); ; {
		left := n.processes(which)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v do not end", left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes are those with such arguments and all that descends from them: a
// container's are children of its shim.
func (n node) processes(which func(args []string) bool) (pids []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		stat, _ := os.ReadFile(path)
		// The name before the parent may hold anything, a ")" too.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if which(strings.Split(string(command), "\x00")) {
			pids = append(pids, pid)
		}
	}
	for i := 0; i < len(pids); i++ {
		for _, child := range children[pids[i]] {
			if !slices.Contains(pids, child) {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// owns says whether a command line is that of a part of this node.
func (n node) owns(args []string) bool {
	ours := func(arg string) bool {
		return strings.HasPrefix(strings.TrimPrefix(arg, "--config="), n.file()+"/")
	}
	switch {
	case strings.HasPrefix(filepath.Base(args[0]), "containerd"):
		return slices.ContainsFunc(args, ours)
	case len(args) > 2 && args[1] == kubeletName:
		return ours(args[2])
	}
	return false
}

// daemon says whether a command line is containerd's or the kubelet's. Shims
// are no children of containerd, and live on without it.
func (n node) daemon(args []string) bool {
	return n.owns(args) && !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim")
}

// cgroups are those of the containers in every hierarchy. Their common parent
// is containerd's own, and other nodes' too.
func (n node) cgroups() (dirs []string) {
	ids, _ := os.ReadDir(n.file("state", "io.containerd.runtime.v2.task", "k8s.io"))
	for _, id := range ids {
		for _, pattern := range []string{"/sys/fs/cgroup/*/k8s.io/", "/sys/fs/cgroup/k8s.io/"} {
			found, _ := filepath.Glob(pattern + id.Name())
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

// files are the node's in folders that containerd, the network plugins and the
// kubelet share with others of their kind, and that cannot be set: sockets of
// shims, what was answered for a network namespace, and links to logs.
func (n node) files() (paths []string) {
	bundles, _ := filepath.Glob(n.file("state", "io.containerd.runtime.v2.task", "k8s.io", "*", "bootstrap.json"))
	for _, path := range bundles {
		var shim struct{ Address string }
		text, _ := os.ReadFile(path)
		if json.Unmarshal(text, &shim) != nil {
			continue // it was being written: there is no container yet
		}
		if socket, ok := strings.CutPrefix(shim.Address, "unix://"); ok && !slices.Contains(paths, socket) {
			paths = append(paths, socket) // a pod's containers have one
		}
	}
	results, _ := filepath.Glob("/var/lib/cni/results/*")
	for _, path := range results {
		var result struct{ NetNS string }
		text, _ := os.ReadFile(path)
		if json.Unmarshal(text, &result) == nil && strings.HasPrefix(result.NetNS, n.file()+"/") {
			paths = append(paths, path)
		}
	}
	links, _ := filepath.Glob("/var/log/containers/*.log")
	for _, path := range links {
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, n.file()+"/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// mounts are those below the node's folder, the latest first.
func (n node) mounts() (paths []string) {
	text, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			path := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[1])
			if strings.HasPrefix(path, n.file()+"/") {
				paths = append(paths, path)
			}
		}
	}
	slices.Reverse(paths)
	return paths
}
