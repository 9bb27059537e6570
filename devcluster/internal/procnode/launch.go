package procnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/reaper"
)

// launcher starts the processes of containers.
type launcher struct {
	thread *child.Thread
	reaper *reaper.Reaper
}

// process is a container's running command and its process group.
type process struct {
	pid int
	os  *os.Process
	log *logFile
	// output is our end of the pipe that is the command's stdout and stderr.
	output   *os.File
	copied   chan struct{}
	launcher *launcher
}

// command is what a container runs.
type command struct {
	argv []string
	env  []string
	dir  string
}

// start starts a command whose output goes to log. stdout and stderr are one
// pipe, so that the log has them in the order in which they were written.
func (l *launcher) start(c command, log *logFile) (*process, error) {
	path, err := lookPath(c.argv[0], c.dir, environValue(c.env, "PATH"))
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	var started *os.Process
	l.thread.Do(func() {
		started, err = os.StartProcess(path, c.argv, &os.ProcAttr{
			Dir: c.dir, Env: c.env, Files: []*os.File{null, input, input}, Sys: child.Attr(),
		})
	})
	if err != nil {
		output.Close()
		return nil, err
	}
	// Until the reaper knows, only the parent-death signal guards the process.
	if err := l.reaper.Add(started.Pid); err != nil {
		logf("process %d: %v", started.Pid, err)
	}
	p := &process{pid: started.Pid, os: started, log: log, output: output, copied: make(chan struct{}), launcher: l}
	go func() {
		log.copyFrom(output)
		close(p.copied)
	}()
	return p, nil
}

// wait returns the exit code once the command and all of its group are gone and
// the log is complete. A death by signal N is 128+N, as in a container.
func (p *process) wait() int32 {
	state, err := p.os.Wait()
	// In a container everything ends with the first process.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	if err := p.launcher.reaper.Remove(p.pid); err != nil {
		logf("process %d: %v", p.pid, err)
	}
	// What left the group may hold the pipe open; do not wait for it.
	_ = p.output.SetReadDeadline(time.Now().Add(time.Second))
	<-p.copied
	p.output.Close()
	p.log.finish()
	if err != nil {
		logf("process %d: wait: %v", p.pid, err)
		return 128
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}

// terminate asks the first process to end, as a container runtime does.
func (p *process) terminate() { _ = p.os.Signal(syscall.SIGTERM) }

// kill ends the whole group.
func (p *process) kill() {
	// Through os.Process first: it knows whether the number is still ours.
	if p.os.Signal(syscall.SIGKILL) == nil {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
}

// lookPath finds a command the way the container would: by its own PATH, with
// relative names from its own folder.
func lookPath(file, dir, path string) (string, error) {
	if strings.Contains(file, "/") {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if err := executable(file); err != nil {
			return "", fmt.Errorf("exec: %q: %w", file, err)
		}
		return file, nil
	}
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			continue
		}
		candidate := filepath.Join(folder, file)
		if executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", file)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file or directory")
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("permission denied")
	}
	return nil
}

func environValue(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, found := strings.CutPrefix(env[i], name+"="); found {
			return value
		}
	}
	return ""
}
