package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// The file name is the plugin's name and its place in the order, bytewise; a plugin may run twice under two names.
func TestOrderAndNames(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"selector-b", "selector-B", "selector-10-gpu", "selector-9"} {
		r.install(name, goodSelector(nil))
	}
	r.install("provider-x", goodProvider(nil))
	r.behave("selector-a-link", goodSelector(nil))
	if err := os.Symlink("selector-b", filepath.Join(r.dir, "selector-a-link")); err != nil {
		t.Fatal(err)
	}
	r.write(filepath.Join(r.dir, "README.md"), "no plugin", 0o644)
	r.write(filepath.Join(r.dir, "selector-"), "no plugin", 0o755)
	h := r.start(r.options())
	var chain []string
	for _, s := range h.Selectors() {
		chain = append(chain, s.Name())
		if hooks := s.Hooks(); !hooks.SelectCluster || hooks.SelectClusters {
			t.Errorf("hooks of %s: %+v", s.Name(), hooks)
		}
	}
	if want := []string{"selector-10-gpu", "selector-9", "selector-B", "selector-a-link", "selector-b"}; !slices.Equal(chain, want) {
		t.Errorf("chain %v, want %v", chain, want)
	}
	list := h.List()
	if len(list) != 6 || list[0].Name != "provider-x" {
		t.Fatalf("%+v", list)
	}
	s := list[1]
	if s.Kind != Selector || s.Version != "1.2.3" || s.Title != "A fake" || s.State != Running || s.PID == 0 || s.Memory == 0 ||
		s.Path != filepath.Join(r.dir, "selector-10-gpu") || s.Restarts != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

// What cannot be meant is an error before anything starts.
func TestStartErrors(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	other := filepath.Join(r.base, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	with := func(change func(o *Options)) Options {
		o := r.options()
		change(&o)
		return o
	}
	config := func(name string, c Config) Options {
		return with(func(o *Options) { o.Plugins = map[string]Config{name: c} })
	}
	if err := os.Link(fakeBinary, filepath.Join(other, "selector-x")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    Options
		says []string
	}{
		"twice":          {with(func(o *Options) { o.Dirs = append(o.Dirs, other) }), []string{"selector-x is there more than once", r.dir, other}},
		"not there":      {config("selector-y", Config{}), []string{"names plugin selector-y, but no plugin directory", "mark it required"}},
		"no plugin name": {config("gpu", Config{Required: true}), []string{`names plugin "gpu"`}},
		"policy":         {config("selector-x", Config{OnError: "shrug"}), []string{"on_error", "fail or ignore"}},
		"pin":            {config("selector-x", Config{SHA256: "abc"}), []string{"sha256"}},
		"grant":          {config("selector-x", Config{GrantBackendEnvironment: ptr(true)}), []string{"for providers"}},
		"ignore":         {config("provider-y", Config{OnError: "ignore", Required: true}), []string{"only a selector"}},
		"dir is a file":  {with(func(o *Options) { o.Dirs = []string{filepath.Join(r.dir, "selector-x")} }), []string{"is a file"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewHost(c.o)
			if err == nil {
				t.Fatal("no error")
			}
			wants(t, err.Error(), c.says...)
		})
	}
	t.Run("same directory twice, and one that is not there", func(t *testing.T) {
		h, err := NewHost(with(func(o *Options) { o.Dirs = append(o.Dirs, r.dir+"/.", filepath.Join(r.base, "absent")) }))
		if err != nil || len(h.List()) != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("socket directory too long", func(t *testing.T) {
		long := filepath.Join(r.base, strings.Repeat("l", 90))
		if err := os.Mkdir(long, 0o755); err != nil {
			t.Fatal(err)
		}
		err := r.host(with(func(o *Options) { o.SocketDir = long })).Start(t.Context())
		if err == nil {
			t.Fatal("no error")
		}
		wants(t, err.Error(), "too long")
	})
}

// A required plugin that is not there is in the list and in the chain, where it is an error, and works once it is there.
func TestRequiredPluginMissing(t *testing.T) {
	r := newRig(t)
	o := r.options()
	o.Plugins = map[string]Config{"selector-gpu": {Required: true}, "provider-x": {Required: true}, "selector-soft": {Required: true, OnError: "ignore"}}
	h := r.start(o)
	s := statusOf(t, h, "selector-gpu")
	if s.State != Missing || !s.Required {
		t.Errorf("%+v", s)
	}
	gpu := selectorOf(t, h, "selector-gpu")
	if hooks := gpu.Hooks(); !hooks.SelectCluster || !hooks.SelectClusters || gpu.IgnoreErrors() {
		t.Errorf("%+v", hooks)
	}
	if !selectorOf(t, h, "selector-soft").IgnoreErrors() {
		t.Error("the failure policy is lost")
	}
	_, err := ask(t, h, "selector-gpu")
	if !errors.Is(err, ErrNotRunning) {
		t.Fatalf("%v", err)
	}
	wants(t, err.Error(), "selector(selector-gpu): it is required but missing: there is no file of this name")
	if _, err := gpu.SelectClusters(t.Context(), snapshot(), placement.User{}, placement.Project{}); err == nil {
		t.Error("no error")
	}
	r.install("selector-gpu", goodSelector(nil))
	untilState(t, h, "selector-gpu", Running)
	if _, err := ask(t, h, "selector-gpu"); err != nil {
		t.Error(err)
	}
}

// A file that never worked and that nobody configured does not stop placements; a required or configured one does.
func TestChainLeavesOutStrayFiles(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.dir, "selector-stray"), "", 0o755)
	r.write(filepath.Join(r.dir, "selector-meant"), "", 0o755)
	o := r.options()
	o.Plugins = map[string]Config{"selector-meant": {}}
	h := r.start(o)
	if chain := h.Selectors(); len(chain) != 1 || chain[0].Name() != "selector-meant" {
		t.Errorf("%v", chain)
	}
}

// Links must end inside a plugin directory.
func TestLinks(t *testing.T) {
	r := newRig(t)
	second := filepath.Join(r.base, "second")
	if err := os.MkdirAll(filepath.Join(second, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"selector-sub", "selector-other", "selector-outside"} {
		r.behave(name, goodSelector(nil))
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyTo := func(path string) string {
		if err := os.Link(fakeBinary, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link(copyTo(filepath.Join(second, "lib", "fake")), "selector-other")
	outside := copyTo(filepath.Join(r.base, "fake"))
	link(outside, "selector-outside")
	o := r.options()
	o.Dirs = append(o.Dirs, second)
	h := r.start(o)
	if s := statusOf(t, h, "selector-other"); s.State != Running {
		t.Errorf("%+v", s)
	}
	s := statusOf(t, h, "selector-outside")
	if s.State != Refused {
		t.Errorf("%+v", s)
	}
	wants(t, s.LastError, outside, "outside of every plugin directory", "move the file into a plugin directory")
}

// A plugin in a directory that others may write is refused until that is mended.
func TestWritableDirectory(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	if err := os.Chmod(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	h := r.start(r.options())
	s := statusOf(t, h, "selector-x")
	if s.State != Refused {
		t.Errorf("%+v", s)
	}
	wants(t, s.LastError, r.dir, "may be written by others than its owner (mode 0777)", "chmod go-w on the directory")
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	untilState(t, h, "selector-x", Running)
}

// A pin covers the file behind links, at every start.
func TestPins(t *testing.T) {
	r := newRig(t)
	raw, err := os.ReadFile(fakeBinary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	good := hex.EncodeToString(sum[:])
	r.install("selector-good", goodSelector(nil))
	r.install("selector-bad", goodSelector(nil))
	r.behave("selector-link", goodSelector(nil))
	if err := os.Symlink("selector-good", filepath.Join(r.dir, "selector-link")); err != nil {
		t.Fatal(err)
	}
	wrong := strings.Repeat("ab", 32)
	o := r.options()
	o.Plugins = map[string]Config{"selector-good": {SHA256: good}, "selector-link": {SHA256: strings.ToUpper(good)}, "selector-bad": {SHA256: wrong, Required: true}}
	h := r.start(o)
	for _, name := range []string{"selector-good", "selector-link"} {
		if s := statusOf(t, h, name); s.State != Running {
			t.Errorf("%+v", s)
		}
	}
	s := statusOf(t, h, "selector-bad")
	if s.State != Refused {
		t.Errorf("%+v", s)
	}
	wants(t, s.LastError, good, wrong, "change the pin after you have checked")
	if _, err := ask(t, h, "selector-bad"); err == nil {
		t.Error("a refused plugin answered")
	}

	// A second start checks again, with a hash of its own.
	if err := h.Restart("selector-good"); err != nil {
		t.Fatal(err)
	}
	before := statusOf(t, h, "selector-good").PID
	until(t, h, "selector-good", "restarted", func(s Status) bool { return s.State == Running && s.PID != before })
	r.script("selector-good", "#!/bin/sh\n")
	if err := h.Restart("selector-good"); err != nil {
		t.Fatal(err)
	}
	untilState(t, h, "selector-good", Refused)
}
