package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C during the demo leaves no process behind within ten seconds.
func TestDemoInterrupted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finding every descendant needs /proc")
	}
	binary := filepath.Join(t.TempDir(), "demo")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "./demo")
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	var out output
	demo := exec.Command(binary, "--listen", "127.0.0.1:0")
	demo.Stdout, demo.Stderr = &out, &out
	demo.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-demo.Process.Pid, syscall.SIGKILL) })

	deadline := time.Now().Add(3 * minute)
	for !strings.Contains(out.String(), "Ctrl-C ends it") {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended by itself: %v\n%s", err, out.String())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the demo is not ready:\n%s", out.String())
		}
	}
	family := descendants(demo.Process.Pid)
	if len(family) < 10 {
		t.Errorf("only %d processes found below the demo: the test shows little", len(family))
	}

	began := time.Now()
	if err := syscall.Kill(-demo.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after Ctrl-C the demo ended with %v:\n%s", err, out.String())
		}
	case <-time.After(15 * time.Second):
		t.Error("the demo did not end")
	}
	for {
		left := alive(family)
		if len(left) == 0 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("still there after ten seconds: %v", left)
		}
		pause(t.Context().Done(), 50*time.Millisecond)
	}
	t.Logf("%d processes were gone after %s", len(family), time.Since(began).Round(100*time.Millisecond))
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process identifies a process over the reuse of its number.
type process struct {
	pid     int
	started string
	name    string
}

// stat reads one process; ok is false when there is none.
func stat(pid int) (p process, parent int, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, 0, false
	}
	text := string(raw)
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	rest := strings.Fields(text[shut+1:])
	parent, _ = strconv.Atoi(rest[1])
	return process{pid: pid, started: rest[19], name: text[open+1 : shut]}, parent, rest[0] != "Z"
}

func descendants(root int) []process {
	children := map[int][]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p, parent, ok := stat(pid); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var out []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			out = append(out, p)
			queue = append(queue, p.pid)
		}
	}
	return out
}

func alive(family []process) []process {
	var out []process
	for _, p := range family {
		if now, _, ok := stat(p.pid); ok && now.started == p.started {
			out = append(out, p)
		}
	}
	return out
}
