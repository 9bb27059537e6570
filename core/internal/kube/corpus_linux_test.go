package kube

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig/corpus"
)

// openedIn watches a directory and returns a function that lists what was opened, read or made in it.
func openedIn(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_OPEN|syscall.IN_ACCESS|syscall.IN_CREATE|syscall.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		var names []string
		buf := make([]byte, 1<<16)
		for {
			n, err := syscall.Read(fd, buf)
			if n <= 0 || err != nil {
				return names
			}
			for at := 0; at < n; {
				e := (*syscall.InotifyEvent)(unsafe.Pointer(&buf[at]))
				at += syscall.SizeofInotifyEvent
				names = append(names, strings.TrimRight(string(buf[at:at+int(e.Len)]), "\x00"))
				at += int(e.Len)
			}
		}
	}
}

// B03, B05: whatever a provider answers, nothing is started, no file is opened and nobody is called but the server of an
// accepted text; a refusal reaches the caller as it is.
func TestB05CorpusTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"token": 0o600, "run": 0o700} {
		// The program leaves a file when it is started.
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	opened := openedIn(t, dir)
	if raw, err := os.ReadFile(filepath.Join(dir, "token")); err != nil || len(raw) == 0 || len(opened()) == 0 {
		t.Fatal("the canary does not see a file being opened")
	}
	cases, err := corpus.Cases(corpus.Places{Canary: dir, Listener: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		var refusal *kubeconfig.Refusal
		target, err := resolve(Connection{Kubeconfig: c.Text}, c.Options, nil, corpus.Now)
		switch {
		case len(c.Problems) > 0 && errors.As(err, &refusal) && refusal.Class == c.Problems[0].Class:
			continue
		case len(c.Problems) > 0 && len(c.Text) == 0: // the provider gave nothing at all, which is said before
			continue
		case len(c.Problems) > 0 || err != nil:
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		l, err := newLink("c", target, nil, false, nil)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if _, err := newClient(l, "jobs", nil, ""); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		l.close(0)
		// client-go itself, with what would be stored: it opens files and starts programs where a text names them.
		r, err := kubeconfig.Rebuild(c.Text, c.Options)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		cfg, err := clientcmd.RESTConfigFromKubeConfig(r.YAML)
		if err != nil || cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.BearerTokenFile != "" {
			t.Errorf("%s: client-go makes %v of it, %v", c.Name, cfg, err)
		}
	}
	if names := opened(); len(names) != 0 {
		t.Errorf("opened: %q", names)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program was started")
	}
	// Connections are accepted in their order: the first must be the one made here.
	last, err := net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	first, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().String() != last.LocalAddr().String() {
		t.Error("somebody called the listener")
	}
}
