// Package stack runs the built binaries as a user would: the local clusters, the server and its command line. The demo,
// the end-to-end tests and the benchmarks stand on it.
package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Root finds the repository's root from the working directory upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.work")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.work in %s or above: run inside of the repository", dir)
		}
	}
}

// Child is a started process. Its output goes line by line to a callback and, the last of it, into errors.
type Child struct {
	cmd  *exec.Cmd
	name string
	tail tail
	done chan struct{}
	err  error // set before done is closed
}

// spawn starts a command whose stdout and stderr go to line (nil: nowhere) beside the kept tail. It runs in a process
// group of its own, so that a terminal's Ctrl-C reaches it only through Stop, in the right order.
func spawn(name string, cmd *exec.Cmd, line func(string)) (*Child, error) {
	c := &Child{cmd: cmd, name: name, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	w := &lines{to: line, tail: &c.tail}
	cmd.Stdout, cmd.Stderr = w, w
	// Grandchildren may hold the pipes after the child is gone.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// Pid is the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Kill ends the process at once, as a power cut would, and waits for it.
func (c *Child) Kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.done
}

// Stop asks the process to end and kills it when the patience is over. Stopping what has ended is fine.
func (c *Child) Stop(patience time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return nil
	case <-time.After(patience):
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.done
		return fmt.Errorf("%s did not end within %s and was killed:\n%s", c.name, patience, c.tail.String())
	}
}

// wait returns when ready is closed, with an error when the process ends first or the time is over.
func (c *Child) wait(ctx context.Context, ready <-chan struct{}, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-c.done:
		//nolint:errorlint // it is nil after exit code 0, and nobody asks for its kind
		return fmt.Errorf("%s ended before it was ready: %v\n%s", c.name, c.err, c.tail.String())
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready after %s: %w\n%s", c.name, limit, ctx.Err(), c.tail.String())
	}
}

// ExitCode is what a finished command returned, or -1.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// lines cuts a stream into lines.
type lines struct {
	mu   sync.Mutex
	to   func(string)
	tail io.Writer
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.tail.Write(p)
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.rest = rest
		if w.to != nil {
			w.to(string(line))
		}
	}
}

// tail keeps the end of what was written.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
