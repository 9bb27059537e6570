// Package reaper kills the process groups of pods when the node process that
// started them is gone, even by SIGKILL.
//
// A parent-death signal reaches only the first process of a pod, not what that
// one has started. So each node process has one reaper beside it, in a session
// of its own, that reads from a pipe which groups exist; the end of the pipe is
// the end of the node, and the reaper kills what is left.
//
// This package imports the standard library only, and works in init: there the
// dozens of megabytes that Kubernetes' packages set up at start do not exist yet.
package reaper

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
)

// argument is the one argument with which the binary becomes a reaper.
const argument = "devcluster-reaper"

func init() {
	if len(os.Args) == 2 && os.Args[1] == argument {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		killAll(watch(os.Stdin))
		os.Exit(0)
	}
}

// watch reads "+group" and "-group" lines until the end and returns the groups
// that are still there.
func watch(r io.Reader) map[int]bool {
	groups := map[int]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		group, err := strconv.Atoi(line[1:])
		if err != nil || group <= 1 { // kill(-1) would mean everybody
			continue
		}
		if line[0] == '+' {
			groups[group] = true
		} else {
			delete(groups, group)
		}
	}
	return groups
}

func killAll(groups map[int]bool) {
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// Reaper is the node's end of the pipe.
type Reaper struct {
	mu   sync.Mutex
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// Start starts a reaper process.
func Start() (*Reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("reaper: find this binary: %w", err)
	}
	cmd := exec.Command(self, argument)
	cmd.Env = []string{}
	// Its own session: whoever kills the node's group does not kill the reaper.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("reaper: start: %w", err)
	}
	return &Reaper{pipe: pipe, cmd: cmd}, nil
}

// Add tells the reaper of a new group.
func (r *Reaper) Add(group int) error { return r.tell('+', group) }

// Remove tells the reaper that a group is gone, so that it never kills a
// stranger that got the same number later.
func (r *Reaper) Remove(group int) error { return r.tell('-', group) }

func (r *Reaper) tell(sign byte, group int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := fmt.Fprintf(r.pipe, "%c%d\n", sign, group); err != nil {
		return fmt.Errorf("reaper: tell of group %d: %w", group, err)
	}
	return nil
}

// Close ends the reaper, which kills the groups that are left.
func (r *Reaper) Close() {
	r.pipe.Close()
	_ = r.cmd.Wait()
}
