package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
