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
// outlives a process: containers, mounts, cgroups and the bridge.
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

// clean removes everything of the node that is not a file.
func (n node) clean() error {
	var errs []error
	cgroups := n.cgroups()
	for end := time.Now().Add(10 * time.Second); ; {
		left := n.processes()
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			errs = append(errs, fmt.Errorf("processes %v do not end", left))
			break
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, path := range n.mounts() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	for _, dir := range cgroups {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", n.bridge())); err == nil {
		if out, err := exec.Command("ip", "link", "delete", n.bridge()).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete the bridge %s: %w: %s", n.bridge(), err, out))
		}
	}
	return errors.Join(errs...)
}

// processes are containerd, its shims and the kubelet, by their arguments, and
// all that descends from them: a container's are children of its shim.
func (n node) processes() (pids []int) {
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
		if n.owns(strings.Split(string(command), "\x00")) {
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
