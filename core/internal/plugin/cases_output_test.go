package plugin

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
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
