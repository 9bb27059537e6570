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
