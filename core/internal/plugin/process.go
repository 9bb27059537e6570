package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

const (
	// endGrace is how long an error that looks like a lost connection waits for the news that the process has ended.
	endGrace = 250 * time.Millisecond
	// drainGrace is how long the output of a process is read after its end, for children that still hold its pipes.
	drainGrace = 250 * time.Millisecond
	// termGrace is how long a process has after SIGTERM before SIGKILL.
	termGrace = time.Second
	// killGrace is how long the end of a process is awaited after SIGKILL. Only a process stuck in the kernel needs longer.
	killGrace = 2 * time.Second
	// exitGrace is how long a process that printed something else than a handshake has to exit by itself.
	exitGrace = 500 * time.Millisecond
	// busyPause is the pause before a file that is being written is tried again.
	busyPause = 50 * time.Millisecond
)

// process is one process of a plugin. It is go-plugin's runner, so that the host keeps what go-plugin would hide: the
// exit, the first line of stdout, the last lines of stderr, and a process group of its own, so that a signal to the
// server's group does not end the plugin first and children of a plugin do not outlive it.
//
// One process is started at most once.
type process struct {
	ctx  context.Context // ends the attempts to start
	path string          // what is run
	argv string          // what it sees as its own name
	out  *output
	busy func() // told when the file is being written

	env []string // set before Start

	pid    atomic.Int64  // 0: not started
	shaken atomic.Bool   // the handshake is over
	exited chan struct{} // closed when the process has ended
	done   chan struct{} // closed when its output has been read, too
	state  *os.ProcessState

	mu       sync.Mutex
	startErr error // of the last attempt to start

	killOnce sync.Once
}

var _ runner.Runner = (*process)(nil)

func newProcess(ctx context.Context, f file, out *output, busy func()) *process {
	return &process{ctx: ctx, path: f.real, argv: f.path, out: out, busy: busy,
		exited: make(chan struct{}), done: make(chan struct{})}
}

// Start runs the file. A file that is being written is tried until the context ends.
func (p *process) Start(context.Context) error {
	for {
		err := p.ctx.Err()
		if err == nil {
			err = p.start()
		}
		p.mu.Lock()
		p.startErr = err
		p.mu.Unlock()
		if !errors.Is(err, syscall.ETXTBSY) {
			return err
		}
		p.busy()
		await(p.ctx.Done(), busyPause)
	}
}

// notStarted is why there is no process; nil when there is one.
func (p *process) notStarted() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startErr
}

func (p *process) start() error {
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("no pipe for the plugin: %w", err)
	}
	stderr, stderrW, err := os.Pipe()
	if err != nil {
		closeAll(stdout, stdoutW)
		return fmt.Errorf("no pipe for the plugin: %w", err)
	}
	cmd := exec.Command(p.path)
	cmd.Args[0] = p.argv
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = stdoutW, stderrW
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	closeAll(stdoutW, stderrW)
	if err != nil {
		closeAll(stdout, stderr)
		return err
	}
	p.pid.Store(int64(cmd.Process.Pid))
	read := p.out.read(stdout, stderr)
	go p.wait(cmd, read, stdout, stderr)
	return nil
}

// wait sees the process to its end.
func (p *process) wait(cmd *exec.Cmd, read <-chan struct{}, stdout, stderr *os.File) {
	_ = cmd.Wait() // the state says it all
	p.state = cmd.ProcessState
	close(p.exited)
	_ = syscall.Kill(-int(p.pid.Load()), syscall.SIGKILL) // what it may have started
	deadline := time.Now().Add(drainGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	<-read
	closeAll(stdout, stderr)
	close(p.done)
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// signal sends a signal to the process and its children, unless it has ended.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.exited: // its number may belong to another process by now
	default:
		_ = syscall.Kill(-int(p.pid.Load()), sig)
	}
}

// end makes sure that the process ends, and says whether it did: SIGTERM, and SIGKILL when that does not help. It
// returns in bounded time.
func (p *process) end() bool {
	if p.pid.Load() == 0 {
		return true
	}
	p.killOnce.Do(func() { p.signal(syscall.SIGTERM) })
	if await(p.done, termGrace) {
		return true
	}
	p.signal(syscall.SIGKILL)
	return await(p.done, killGrace)
}

// await waits for a channel to be closed, at most for a time, and says whether it was.
func await(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// epitaph says how the process ended and what it said last. Only after the end.
func (p *process) epitaph() string {
	parts := []string{p.state.String()} // "exit status 3", "signal: killed"
	if code := p.state.ExitCode(); code >= 0 {
		parts[0] = "exit code " + strconv.Itoa(code)
	}
	if last := p.out.last(); last != "" {
		parts = append(parts, "it said: "+last)
	}
	return strings.Join(parts, "; ")
}

// Wait is go-plugin's; it returns when the process has ended and its output has been read.
func (p *process) Wait(context.Context) error {
	<-p.done
	return nil
}

// Kill is go-plugin's; see end. A process that did not shake hands gets a moment to exit by itself, because its exit code
// says more than our signal.
func (p *process) Kill(context.Context) error {
	if !p.shaken.Load() {
		await(p.done, exitGrace)
	}
	if !p.end() {
		return fmt.Errorf("process %d does not end after SIGKILL", p.pid.Load())
	}
	return nil
}

// Stdout is go-plugin's: the first line that the plugin prints, then nothing until it ends. What it prints after the
// handshake is read and dropped by the host, so it can neither block the plugin nor fill the memory.
func (p *process) Stdout() io.ReadCloser { return &firstLine{p: p} }

// Stderr is go-plugin's: nothing until the process ends. The host reads stderr itself.
func (p *process) Stderr() io.ReadCloser { return &firstLine{p: p, begun: true} }

// Name is go-plugin's.
func (p *process) Name() string { return p.path }

// ID is go-plugin's: empty until the process runs.
func (p *process) ID() string {
	if pid := p.pid.Load(); pid != 0 {
		return strconv.FormatInt(pid, 10)
	}
	return ""
}

// Diagnose is go-plugin's; the host makes its own messages.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost is go-plugin's; plugins run on this machine.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is go-plugin's; plugins run on this machine.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// firstLine reads the first line of a process's stdout and then blocks until the process has ended.
type firstLine struct {
	p     *process
	begun bool
	rest  string
}

// Read blocks until there is a first line.
func (f *firstLine) Read(b []byte) (int, error) {
	if !f.begun {
		<-f.p.out.first
		f.begun, f.rest = true, f.p.out.handshake()
	}
	if f.rest != "" {
		n := copy(b, f.rest)
		f.rest = f.rest[n:]
		return n, nil
	}
	<-f.p.done
	return 0, io.EOF
}

// Close does nothing; the pipe belongs to the process.
func (f *firstLine) Close() error { return nil }
