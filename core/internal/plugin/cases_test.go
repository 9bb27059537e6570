package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// A provider that prints before the handshake is shown with the line and the exit code; another one works.
func TestB65PrintsBeforeTheHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		b      behaviour
		script string
		says   []string
	}{
		"hello":            {b: behaviour{Stdout: "hello", Exit: ptr(0)}, says: []string{`printed "hello"`, "exit code 0"}},
		"line of 1 MB":     {b: behaviour{StdoutFill: 1 << 20, Exit: ptr(4)}, says: []string{`printed "xxxx`, "exit code 4"}},
		"panic at init":    {b: behaviour{Panic: "no database"}, says: []string{"printed nothing", "exit code 2", "panic: no database"}},
		"help text":        {b: behaviour{Stderr: "This binary is a plugin.\n", Exit: ptr(1)}, says: []string{"exit code 1", "This binary is a plugin."}},
		"nothing":          {b: behaviour{Exit: ptr(0)}, says: []string{"printed nothing", "exit code 0"}},
		"hello, then well": {b: func() behaviour { b := goodProvider(nil); b.Stdout = "hello"; return b }(), says: []string{`printed "hello"`}},
		"script":           {script: "#!/bin/sh\necho starting up\nexit 7\n", says: []string{`printed "starting up"`, "exit code 7"}},
		"usage error":      {script: "#!/bin/sh\necho bad option >&2\nexit 64\n", says: []string{"printed nothing", "exit code 64", "bad option"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			path := filepath.Join(r.dir, "provider-bad")
			if c.script != "" {
				r.script("provider-bad", c.script)
			} else {
				r.install("provider-bad", c.b)
			}
			r.install("provider-good", goodProvider(nil))
			h := r.start(r.options())
			bad := untilState(t, h, "provider-bad", Deactivated)
			wants(t, bad.LastError, append(c.says, path)...)
			if len(bad.LastError) > 2000 {
				t.Errorf("the message has %d bytes", len(bad.LastError))
			}
			if _, err := h.Connect(t.Context(), cluster.Cluster{Type: "simple"}); err != nil {
				t.Errorf("the other provider: %v", err)
			}
		})
	}
}

// The first line is shown without the secrets of the plugin's configuration.
func TestB65FirstLineHidesSecrets(t *testing.T) {
	r := newRig(t)
	r.install("provider-bad", behaviour{Stdout: "token is s3cr3t-value", Stderr: "cannot use s3cr3t-value\n", Exit: ptr(1)})
	o := r.options()
	o.Plugins = map[string]Config{"provider-bad": {Config: []byte(`{"token":"s3cr3t-value"}`)}}
	h := r.start(o)
	bad := untilState(t, h, "provider-bad", Deactivated)
	wants(t, bad.LastError, "token is [redacted]", "cannot use [redacted]")
	if strings.Contains(r.log.String(), "s3cr3t") {
		t.Error("the secret is in the log")
	}
}

// A plugin that spams stdout after the handshake is neither blocked by that, nor does it fill the log.
func TestB65SpamAfterTheHandshake(t *testing.T) {
	r := newRig(t)
	b := goodProvider(nil)
	b.Spam = true
	r.install("provider-spam", b)
	h := r.start(r.options())
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, err := h.Connect(t.Context(), cluster.Cluster{Type: "simple"}); err != nil {
			t.Fatal(err)
		}
	}
	h.Close()
	if n := len(r.log.String()); n > 400<<10 {
		t.Errorf("the log has %d bytes", n)
	}
}

// A plugin that exits at its second call: an error with its last lines, and the next call works.
func TestB66ExitsAtTheSecondCall(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Answer: []byte(saysAbstained), ExitAt: 2, Panic: "index out of range"}}))
	h := r.start(r.options())
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Fatal(err)
	}
	_, err := ask(t, h, "selector-x")
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "selector(selector-x): the process ended during SelectCluster", "exit code 3", "panic: index out of range")
	if strings.Count(err.Error(), "selector-x") != 1 {
		t.Errorf("the plugin is not named once: %v", err)
	}
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	s := untilState(t, h, "selector-x", Running)
	if s.Restarts != 1 {
		t.Errorf("restarts: %d", s.Restarts)
	}
	wants(t, s.LastError, "panic: index out of range")
}

// A plugin that exits at every call is restarted with back-off and then deactivated: no hot loop.
func TestB66ExitsAtEveryCall(t *testing.T) {
	r := newRig(t)
	r.pace.backoff = 300 * time.Millisecond
	r.pace.maxBackoff = 400 * time.Millisecond
	started := filepath.Join(r.base, "started")
	b := goodSelector(map[string]method{"SelectCluster": {Always: true}})
	b.Started = started
	r.install("selector-x", b)
	h := r.start(r.options())
	var backoffs int
	for {
		_, err := ask(t, h, "selector-x")
		if err == nil {
			t.Fatal("no error")
		}
		s := until(t, h, "selector-x", "settled", func(s Status) bool { return s.State != Starting })
		if s.State == Backoff {
			backoffs++
			wants(t, s.LastError, "the process ended", "exit code 3")
			untilState(t, h, "selector-x", Running)
		}
		if s.State == Deactivated {
			break
		}
	}
	raw, err := os.ReadFile(started)
	if err != nil {
		t.Fatal(err)
	}
	if starts := strings.Count(string(raw), "\n"); starts != 6 {
		t.Errorf("%d starts, want the first and 5 more", starts)
	}
	if backoffs == 0 {
		t.Error("no back-off was seen")
	}
	_, err = ask(t, h, "selector-x")
	wants(t, err.Error(), "it is deactivated", "exit code 3")
}

// kill -9 between two calls: the next call works.
func TestB66KilledBetweenCalls(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	for range 3 {
		before := statusOf(t, h, "selector-x")
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
		if _, err := ask(t, h, "selector-x"); err != nil {
			t.Fatal(err)
		}
	}
}

// An idle plugin is not taken for a crashed one.
func TestB66Idle(t *testing.T) {
	r := newRig(t)
	r.pace.health = time.Millisecond
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	pid := statusOf(t, h, "selector-x").PID
	time.Sleep(500 * time.Millisecond) // the idleness itself
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, h, "selector-x"); s.PID != pid || s.Restarts != 0 || s.LastError != "" {
		t.Errorf("a false crash: %+v", s)
	}
}

// Files that cannot be run are listed as broken or refused with path, reason and remedy; the others load.
func TestB68CannotBeRun(t *testing.T) {
	otherELF := func() string {
		raw, err := os.ReadFile(fakeBinary)
		if err != nil {
			t.Fatal(err)
		}
		raw[18], raw[19] = 22, 0 // EM_S390
		return string(raw)
	}
	for name, c := range map[string]struct {
		make  func(r *rig, path string)
		state State
		says  []string
	}{
		"mode 0644":     {func(r *rig, p string) { r.write(p, "#!/bin/sh\n", 0o644) }, Broken, []string{"may not be executed (mode 0644)", "chmod +x"}},
		"other machine": {func(r *rig, p string) { r.write(p, otherELF(), 0o755) }, Broken, []string{"EM_S390; this machine is", "install the plugin that is built for"}},
		"macOS":         {func(r *rig, p string) { r.write(p, "\xcf\xfa\xed\xfe\x07\x00\x00\x01", 0o755) }, Broken, []string{"a macOS program of another kind"}},
		"Windows":       {func(r *rig, p string) { r.write(p, "MZ\x90\x00", 0o755) }, Broken, []string{"a Windows program"}},
		"empty":         {func(r *rig, p string) { r.write(p, "", 0o755) }, Broken, []string{"is empty", "install it again"}},
		"directory":     {func(r *rig, p string) { _ = os.Mkdir(p, 0o755) }, Broken, []string{"is a directory"}},
		"dangling link": {func(r *rig, p string) { _ = os.Symlink("nowhere", p) }, Broken, []string{"is a link to nowhere, which does not exist", "mend or remove the link"}},
		"link loop":     {func(r *rig, p string) { _ = os.Symlink(filepath.Base(p), p) }, Broken, []string{"link"}},
		"no #! line":    {func(r *rig, p string) { r.write(p, "echo hello\n", 0o755) }, Broken, []string{"neither a program nor a script with a #! line"}},
		"no interpreter": {func(r *rig, p string) { r.write(p, "#!/no/such/shell\n", 0o755) }, Broken,
			[]string{"needs an interpreter or loader that is not on this machine"}},
		"world-writable": {func(r *rig, p string) { r.write(p, "#!/bin/sh\n", 0o757) }, Refused, []string{"may be written by others than its owner (mode 0757)", "chmod go-w"}},
		"group-writable": {func(r *rig, p string) { r.write(p, "#!/bin/sh\n", 0o775) }, Refused, []string{"(mode 0775)"}},
		"fifo":           {func(r *rig, p string) { _ = syscall.Mkfifo(p, 0o755) }, Broken, []string{"is no regular file"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			path := filepath.Join(r.dir, "provider-bad")
			c.make(r, path)
			r.install("provider-good", goodProvider(nil))
			h := r.start(r.options())
			bad := statusOf(t, h, "provider-bad")
			if bad.State != c.state || bad.Path != path {
				t.Errorf("%+v", bad)
			}
			wants(t, bad.LastError, append(c.says, path)...)
			if good := statusOf(t, h, "provider-good"); good.State != Running {
				t.Errorf("the other provider: %+v", good)
			}
		})
	}
}

// A file that the system refuses although its mode allows it is most likely on a noexec mount.
func TestB68NoExecMount(t *testing.T) {
	bad := unrunnable("/plugins/provider-x", &os.PathError{Op: "fork/exec", Path: "/plugins/provider-x", Err: syscall.EACCES})
	if bad == nil || bad.state != Broken {
		t.Fatalf("%+v", bad)
	}
	wants(t, bad.Error(), "/plugins/provider-x", "mounted noexec", "move it to a file system")
}

// Directory and file may have spaces and other letters in their names.
func TestB68PathWithSpaces(t *testing.T) {
	r := newRig(t)
	spaced := filepath.Join(r.base, "my plug ins")
	if err := os.Rename(r.dir, spaced); err != nil {
		t.Fatal(err)
	}
	r.dir = spaced
	r.install("selector-with space é", goodSelector(nil))
	h := r.start(r.options())
	if _, err := ask(t, h, "selector-with space é"); err != nil {
		t.Fatal(err)
	}
}

// A file that is still being written is tried again and works.
func TestB68TextFileBusy(t *testing.T) {
	r := newRig(t)
	r.behave("selector-x", goodSelector(nil))
	raw, err := os.ReadFile(fakeBinary)
	if err != nil {
		t.Fatal(err)
	}
	path := r.write(filepath.Join(r.dir, "selector-x"), string(raw), 0o755)
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	o := r.options()
	o.StartWait = time.Millisecond
	h := r.start(o)
	eventually(t, "said to be written", func() bool {
		return strings.Contains(statusOf(t, h, "selector-x").LastError, "the file is being written")
	})
	writer.Close()
	s := untilState(t, h, "selector-x", Running)
	if s.Restarts != 0 {
		t.Errorf("it took %d restarts", s.Restarts)
	}
}

// A broken file that is mended works without a restart of the server.
func TestB68MendedFile(t *testing.T) {
	r := newRig(t)
	r.behave("selector-x", goodSelector(nil))
	r.write(filepath.Join(r.dir, "selector-x"), "", 0o755)
	h := r.start(r.options())
	untilState(t, h, "selector-x", Broken)
	next := filepath.Join(r.base, "next")
	if err := os.Link(fakeBinary, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(r.dir, "selector-x")); err != nil {
		t.Fatal(err)
	}
	untilState(t, h, "selector-x", Running)
}

// The start limit is ours, also above the 60 s of go-plugin, and the start of the server does not wait for it.
func TestB69SlowStart(t *testing.T) {
	r := newRig(t)
	release := filepath.Join(r.base, "release")
	slow := goodSelector(nil)
	slow.Release = release
	r.install("selector-slow", slow)
	r.install("selector-good", goodSelector(nil))
	o := r.options()
	o.StartLimit, o.StartWait = 2*time.Minute, 200*time.Millisecond
	h := r.host(o)
	begun := time.Now()
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the start took %s", took)
	}
	untilState(t, h, "selector-good", Running)
	if s := statusOf(t, h, "selector-slow"); s.State != Starting {
		t.Errorf("%+v", s)
	}
	if limit := h.goPluginLimit(); limit <= o.StartLimit {
		t.Errorf("go-plugin's own limit of %s is not above ours", limit)
	}
	r.write(release, "", 0o644)
	untilState(t, h, "selector-slow", Running)
	if _, err := ask(t, h, "selector-slow"); err != nil {
		t.Error(err)
	}
}

// A plugin that never shakes hands fails at the limit; once it is mended on disk the next try works.
func TestB69HangsUntilMended(t *testing.T) {
	r := newRig(t)
	path := r.script("selector-x", "#!/bin/sh\nexec sleep 1000\n")
	o := r.options()
	o.StartLimit = 3 * time.Second // long enough for the mended one on a busy machine
	h := r.start(o)
	s := until(t, h, "selector-x", "failed", func(s Status) bool { return s.State == Backoff || s.State == Deactivated })
	wants(t, s.LastError, path, "was not ready within the start limit of 3s", "printed nothing")
	r.behave("selector-x", goodSelector(nil))
	next := filepath.Join(r.base, "next")
	if err := os.Link(fakeBinary, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	untilState(t, h, "selector-x", Running)
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Error(err)
	}
}

// A call that never returns has its own limit and frees its caller; the end of the server does not wait for it.
func TestB69CallHangs(t *testing.T) {
	r := newRig(t)
	told := filepath.Join(r.base, "told")
	b := goodSelector(map[string]method{"SelectCluster": {Hang: true, Told: told}})
	b.Stubborn = true
	r.install("selector-x", b)
	o := r.options()
	o.Plugins = map[string]Config{"selector-x": {Timeout: 300 * time.Millisecond}}
	h := r.start(o)
	begun := time.Now()
	_, err := ask(t, h, "selector-x")
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "selector(selector-x): SelectCluster gave no answer within 300ms")
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the caller was held for %s", took)
	}
	h.byName["selector-x"].cfg.Timeout = time.Hour
	hung := make(chan error, 1)
	chain := selectorOf(t, h, "selector-x")
	go func() {
		_, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{})
		hung <- err
	}()
	eventually(t, "the second call to hang", func() bool {
		raw, _ := os.ReadFile(told)
		return strings.Count(string(raw), "\n") == 2
	})
	begun = time.Now()
	h.Close()
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the end took %s", took)
	}
	if err := <-hung; err == nil {
		t.Error("the hanging call returned without an error")
	}
}

// A frozen process is killed at the end.
func TestB69FrozenAtTheEnd(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	if err := syscall.Kill(statusOf(t, h, "selector-x").PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	h.Close()
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the end took %s", took)
	}
}

// Whose version is whose, and which side to update.
func TestB71ProtocolVersions(t *testing.T) {
	for name, c := range map[string]struct {
		plugin int
		host   []int
		says   string // empty: works
	}{
		"older plugin":      {1, []int{2}, "plugin provider-x (%s) speaks protocol 1; this server supports 2; update the plugin"},
		"newer plugin":      {3, []int{2}, "plugin provider-x (%s) speaks protocol 3; this server supports 2; update the server"},
		"newer than both":   {3, []int{1, 2}, "plugin provider-x (%s) speaks protocol 3; this server supports 1 and 2; update the server"},
		"host speaks both":  {1, []int{1, 2}, ""},
		"host speaks both2": {2, []int{1, 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			b := goodProvider(nil)
			b.Protocol = c.plugin
			path := r.install("provider-x", b)
			h := r.host(r.options())
			h.sets = setsOf(c.host...)
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := statusOf(t, h, "provider-x")
			if c.says == "" {
				if s.State != Running {
					t.Errorf("%+v", s)
				}
				return
			}
			if s.State != Broken {
				t.Errorf("%+v", s)
			}
			wants(t, s.LastError, fmt.Sprintf(c.says, path))
			// Its clusters show the reason.
			_, err := h.Connect(t.Context(), cluster.Cluster{Type: "simple"})
			if err == nil {
				t.Fatal("no error")
			}
			wants(t, err.Error(), fmt.Sprintf(c.says, path))
		})
	}
}

// A go-plugin program of another product says so itself, and what it says is shown.
func TestB71WrongCookie(t *testing.T) {
	r := newRig(t)
	b := goodProvider(nil)
	b.Cookie = "another"
	path := r.install("provider-x", b)
	h := r.start(r.options())
	s := untilState(t, h, "provider-x", Deactivated)
	wants(t, s.LastError, path, "exit code 1", "This binary is a plugin")
}
