//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hostScript is a host of the plugin that can be killed: a shell that starts it in the background and says its pid.
const hostScript = `"$1" & echo "$!" >&3; exec 3>&-; wait`

// endsWithHost starts the plugin as the child of a shell, kills the shell and sees that the plugin ends.
func endsWithHost(ctx context.Context, s *suite) error {
	if s.path == "" {
		return skip("not a binary")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		return skip("there is no sh")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(shell, "-c", hostScript, "sh", s.path)
	cmd.ExtraFiles = []*os.File{w}
	client, _, _, err := launch(cmd)
	w.Close()
	if err != nil {
		return err
	}
	defer client.Kill()
	line := make([]byte, 32)
	n, err := r.Read(line)
	if err != nil {
		return fmt.Errorf("the plugin's pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		return fmt.Errorf("the plugin's pid: %w", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the host: %w", err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !gone(pid) {
		if time.Now().After(deadline) {
			// It is our own grandchild, and nobody else will end it.
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return errors.New("ten seconds after its host was killed the plugin still runs")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// gone says whether a process has ended; one that nobody has waited for has ended too.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := stat[strings.LastIndexByte(string(stat), ')')+1:]
	return strings.HasPrefix(strings.TrimSpace(string(after)), "Z")
}
