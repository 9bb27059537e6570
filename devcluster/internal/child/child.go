// Package child starts the programs of a cluster so that none outlives the
// process that started it, however that one ends.
//
// Two things see to it: a pipe whose writing end only the parent holds, which
// every child watches for its end (portable), and on Linux the parent-death
// signal (also works for a child that is stopped or stuck).
package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// parentEnv names the descriptor of the pipe in a child's environment.
const parentEnv = "DEVCLUSTER_PARENT_FD"

// DieWithParent makes this process exit when the one that started it is gone.
// It does nothing in a process that was not started by a Spawner.
func DieWithParent() {
	value := os.Getenv(parentEnv)
	if value == "" {
		return
	}
	os.Unsetenv(parentEnv)
	fd, err := strconv.Atoi(value)
	if err != nil {
		return
	}
	// Grandchildren must not inherit it.
	syscall.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "parent")
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		os.Exit(1)
	}()
}

// Program is what to start: this binary again, with other arguments, or another.
type Program struct {
	Name    string   // of the component, for messages
	Path    string   // of the binary; empty is this one
	Args    []string // arguments after the binary's own name
	Env     []string // added to the environment
	LogFile string   // takes stdout and stderr, appended
	// Ready, if set, says whether the program does its work yet.
	Ready func(context.Context) error
}

// Spawner starts Programs.
type Spawner struct {
	self   string
	thread *Thread
	// reader is handed to every child; writer is only kept open, never used.
	reader, writer *os.File
}

// NewSpawner returns a Spawner for this binary.
func NewSpawner() (*Spawner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary to start it again: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe that children watch: %w", err)
	}
	return &Spawner{self: self, thread: NewThread(), reader: reader, writer: writer}, nil
}

// Process is a started Program.
type Process struct {
	Program
	cmd      *exec.Cmd
	done     chan struct{}
	waitErr  error
	stopOnce sync.Once
	logStart int64
}

// Start starts the program in a process group of its own, so that Ctrl-C in a
// terminal reaches only the parent, which then stops its children in order.
func (s *Spawner) Start(p Program) (*Process, error) {
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: open its log: %w", p.Name, err)
	}
	defer log.Close()
	start, _ := log.Seek(0, io.SeekEnd)
	path := s.self
	if p.Path != "" {
		path = p.Path // knows nothing of the pipe: only the signal ends it
	}
	cmd := exec.Command(path, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(os.Environ(), p.Env...), parentEnv+"=3")
	cmd.ExtraFiles = []*os.File{s.reader}
	cmd.SysProcAttr = Attr()
	s.thread.Do(func() { err = cmd.Start() })
	if err != nil {
		return nil, fmt.Errorf("%s: start: %w", p.Name, err)
	}
	proc := &Process{Program: p, cmd: cmd, done: make(chan struct{}), logStart: start}
	go func() {
		proc.waitErr = cmd.Wait()
		close(proc.done)
		// Until here: files that nobody refers to are closed by the garbage collector, and the child would end with the pipe.
		runtime.KeepAlive(s)
	}()
	return proc, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the process to end and kills its group when it has not after grace.
// Stopping twice is safe.
func (p *Process) Stop(grace time.Duration) {
	p.stopOnce.Do(func() {
		_ = syscall.Kill(p.PID(), syscall.SIGTERM)
		select {
		case <-p.done:
			return
		case <-time.After(grace):
		}
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	})
	<-p.done
}

// Failure says how the process ended, with what it logged last.
func (p *Process) Failure() error {
	<-p.done
	how := "exited with status 0"
	if p.waitErr != nil {
		how = p.waitErr.Error()
	}
	return fmt.Errorf("%s ended unexpectedly (%s); the end of %s:\n%s", p.Name, how, p.LogFile, tail(p.LogFile, p.logStart, 15))
}

func tail(path string, from int64, lines int) string {
	file, err := os.Open(path)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer file.Close()
	const most = 16 << 10
	if info, err := file.Stat(); err == nil && info.Size()-from > most {
		from = info.Size() - most
	}
	text, _ := io.ReadAll(io.NewSectionReader(file, from, most))
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.ReplaceAll(string(bytes.Join(all, []byte("\n"))), "\n", "\n  ")
}
