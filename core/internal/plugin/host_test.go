package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
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

// The first plugin by name serves a type; a later offer is shadowed and shown. With strict plugins that is fatal.
func TestShadowedTypes(t *testing.T) {
	r := newRig(t)
	r.install("provider-a", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("simple")}))
	r.install("provider-b", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("simple", "other")}))
	h := r.start(r.options())
	a, b := statusOf(t, h, "provider-a"), statusOf(t, h, "provider-b")
	if !slices.Equal(a.Types, []string{"simple"}) || len(a.Shadowed) != 0 {
		t.Errorf("%+v", a)
	}
	if !slices.Equal(b.Types, []string{"other"}) || !slices.Equal(b.Shadowed, []Shadow{{"simple", "provider-a"}}) {
		t.Errorf("%+v", b)
	}
	if served := h.ServedTypes(); len(served) != 2 || served["simple"] != "provider-a" || served["other"] != "provider-b" {
		t.Errorf("%v", served)
	}
	types := h.Types()
	if len(types) != 3 || types[0].Name != "other" || types[1].Plugin != "provider-a" || types[2].ShadowedBy != "provider-a" || types[2].Problem == "" {
		t.Errorf("%+v", types)
	}
	if n := strings.Count(r.log.String(), "cluster type is shadowed"); n == 0 {
		t.Error("the log does not say so")
	}

	// While its plugin restarts the type stays where it is; a deactivated one serves it no more, and nobody takes it over.
	r.behave("provider-a", behaviour{Exit: ptr(1)})
	if err := syscall.Kill(a.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	untilState(t, h, "provider-a", Deactivated)
	if served := h.ServedTypes(); served["simple"] != "" {
		t.Errorf("%v", served)
	}
	_, err := h.Connect(t.Context(), cluster.Cluster{Type: "simple"})
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "provider(provider-a): it is deactivated")

	r.behave("provider-a", goodProvider(nil))
	o := r.options()
	o.StrictPlugins = true
	err = r.host(o).Start(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "cluster type simple is offered by provider-a and by provider-b")
}

// Under strict plugins one that begins to shadow later is refused.
func TestStrictLater(t *testing.T) {
	r := newRig(t)
	r.install("provider-a", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("one")}))
	r.install("provider-b", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("two")}))
	o := r.options()
	o.StrictPlugins = true
	h := r.start(o)
	r.behave("provider-a", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("one", "two")}))
	if err := h.Restart("provider-a"); err != nil {
		t.Fatal(err)
	}
	s := untilState(t, h, "provider-a", Refused)
	wants(t, s.LastError, "it offers cluster type two, which provider-b serves")
}

// Of the host's environment a plugin gets the allow-list and nothing else.
func TestCleanEnvironment(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Env: true}}))
	for name, value := range map[string]string{
		"AWS_SECRET_ACCESS_KEY": "leak", "KUBECONFIG": "leak", "NAGELFLUH_API_KEY": "leak", "HTTPS_PROXY": "leak", "LD_PRELOAD": "",
		"PATHS": "leak", "SSL_CERT_DIR": "/certs", "LANG": "de_DE.UTF-8", "TZ": "Europe/Zurich", "TMPDIR": r.base, "MY_OWN": "given",
	} {
		t.Setenv(name, value)
	}
	o := r.options()
	o.Env = []string{"MY_OWN"}
	h := r.start(o)
	a, err := ask(t, h, "selector-x")
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "MY_OWN",
		"NAGELFLUH_PLUGIN", "NAGELFLUH_PLUGIN_LOG_LEVEL", "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS",
		"PLUGIN_CLIENT_CERT", "PLUGIN_UNIX_SOCKET_DIR"}
	got := map[string]string{}
	for line := range strings.Lines(a.Reason) {
		name, value, isVar := strings.Cut(strings.TrimSpace(line), "=")
		if !isVar || strings.Contains(name, " ") || strings.Contains(value, "=") || len(name) > 30 && !strings.Contains(name, "_") {
			continue // a line of the certificate
		}
		got[name] = value
		if !slices.Contains(allowed, name) && strings.ToUpper(name) == name {
			t.Errorf("%s leaks", name)
		}
	}
	for name, value := range map[string]string{"LANG": "de_DE.UTF-8", "TZ": "Europe/Zurich", "SSL_CERT_DIR": "/certs", "MY_OWN": "given", "TMPDIR": r.base} {
		if got[name] != value {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	if strings.Contains(a.Reason, "leak") {
		t.Errorf("leaks: %s", a.Reason)
	}
}

// Sockets live in a private directory that goes with the host.
func TestSocketDirectory(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	sockets, err := filepath.Glob(filepath.Join(h.root, "*", "plugin*"))
	if err != nil || len(sockets) == 0 {
		t.Fatalf("%v %v", sockets, err)
	}
	root := h.root
	for dir := filepath.Dir(sockets[0]); len(dir) >= len(root); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, info.Mode(), err)
		}
	}
	// Each restart leaves nothing behind.
	for range 2 {
		before := statusOf(t, h, "selector-x").PID
		if err := h.Restart("selector-x"); err != nil {
			t.Fatal(err)
		}
		until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before })
	}
	if dirs, _ := os.ReadDir(root); len(dirs) != 1 {
		t.Errorf("%v", dirs)
	}
	h.Close()
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// A plugin leads a process group of its own, so that a Ctrl-C in the server's terminal does not reach it first.
func TestProcessGroup(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	pid := statusOf(t, h, "selector-x").PID
	group, err := syscall.Getpgid(pid)
	if err != nil || group != pid || group == syscall.Getpgrp() {
		t.Errorf("group %d of process %d: %v", group, pid, err)
	}
}

// What a plugin starts ends with it, however it ends.
func TestChildrenOfPlugins(t *testing.T) {
	r := newRig(t)
	b := goodSelector(nil)
	b.Child = true
	r.install("selector-x", b)
	h := r.start(r.options())
	before := statusOf(t, h, "selector-x")
	if n := len(processesOf(r.base)); n != 2 {
		t.Fatalf("%d processes, want the plugin and its child", n)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
	eventually(t, "the first child to end", func() bool { return len(processesOf(r.base)) == 2 })
	h.Close()
	eventually(t, "the second child to end", func() bool { return len(processesOf(r.base)) == 0 })
}

// kill -9 in the middle of calls: each ends at once with an error, and the plugin is restarted.
func TestKilledDuringCalls(t *testing.T) {
	r := newRig(t)
	told := filepath.Join(r.base, "told")
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Hang: true, Told: told}}))
	o := r.options()
	o.Plugins = map[string]Config{"selector-x": {Timeout: time.Hour}}
	h := r.start(o)
	chain := selectorOf(t, h, "selector-x")
	const calls = 20
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{})
			errs <- err
		}()
	}
	eventually(t, "all calls to hang", func() bool {
		raw, _ := os.ReadFile(told)
		return strings.Count(string(raw), "\n") == calls
	})
	before := statusOf(t, h, "selector-x")
	r.behave("selector-x", goodSelector(nil))
	killed := time.Now()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range calls {
		err := <-errs
		var failed *Error
		if !errors.As(err, &failed) || !failed.Temporary || !errors.Is(err, ErrNotRunning) {
			t.Fatalf("%v", err)
		}
		wants(t, err.Error(), "selector(selector-x): the process ended during SelectCluster: signal: killed")
	}
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("the calls took %s to end", took)
	}
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if s := statusOf(t, h, "selector-x"); s.Restarts != 1 || s.PID == before.PID {
		t.Errorf("%+v", s)
	}
}

// A burst of calls while the plugin is killed: each gets a right answer or an error, never a wrong one.
func TestKilledDuringBurst(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": answer(saysSelected)}))
	h := r.start(r.options())
	chain := selectorOf(t, h, "selector-x")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var wrong []string
	failed := 0
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if i == 0 && j == 10 {
					_ = syscall.Kill(statusOf(t, h, "selector-x").PID, syscall.SIGKILL)
				}
				for {
					a, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{})
					if err == nil && (a.Kind != placement.Selected || a.ClusterID != "a") {
						mu.Lock()
						wrong = append(wrong, fmt.Sprintf("%+v", a))
						mu.Unlock()
					}
					if err == nil {
						break
					}
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("wrong answers: %v", wrong)
	}
	t.Logf("%d calls failed", failed)
}

// A plugin that fails its health checks is replaced, also when it is frozen.
func TestHealth(t *testing.T) {
	r := newRig(t)
	r.pace.health, r.pace.healthLimit = 5*time.Millisecond, 200*time.Millisecond
	sick := filepath.Join(r.base, "sick")
	b := goodSelector(nil)
	b.Unhealthy = sick
	r.install("selector-x", b)
	h := r.start(r.options())
	before := statusOf(t, h, "selector-x")
	r.write(sick, "", 0o644)
	until(t, h, "selector-x", "failed", func(s Status) bool { return strings.Contains(s.LastError, "it failed 3 health checks") })
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	next := until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
	if err := syscall.Kill(next.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != next.PID })
}

// A deactivated plugin is started again by a change of its file and by an admin.
func TestReactivation(t *testing.T) {
	r := newRig(t)
	path := r.install("selector-x", behaviour{Exit: ptr(1)})
	h := r.start(r.options())
	untilState(t, h, "selector-x", Deactivated)
	first := statusOf(t, h, "selector-x")
	wants(t, first.LastError, "it failed 6 times within 10m0s", "an admin reactivates it")
	if first.Restarts != 5 {
		t.Errorf("%+v", first)
	}
	if err := h.Restart("selector-x"); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "deactivated again", func(s Status) bool { return s.State == Deactivated && s.Restarts == 11 })
	r.behave("selector-x", goodSelector(nil))
	stamp := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chtimes(fakeBinary, time.Now(), time.Now()) })
	untilState(t, h, "selector-x", Running)
	if err := h.Restart("selector-y"); !errors.Is(err, ErrUnknownPlugin) {
		t.Errorf("%v", err)
	}
}

// Plugins start at the same time.
func TestParallelStart(t *testing.T) {
	r := newRig(t)
	release := filepath.Join(r.base, "release")
	started := filepath.Join(r.base, "started")
	for i := range 5 {
		b := goodSelector(nil)
		b.Release, b.Started = release, started
		r.install(fmt.Sprintf("selector-%d", i), b)
	}
	h := r.host(r.options())
	done := make(chan error, 1)
	go func() { done <- h.Start(t.Context()) }()
	eventually(t, "all to be started", func() bool {
		raw, _ := os.ReadFile(started)
		return strings.Count(string(raw), "\n") == 5
	})
	r.write(release, "", 0o644)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, s := range h.List() {
		if s.State != Running {
			t.Errorf("%+v", s)
		}
	}
}

// Closing twice, and before the start, is safe.
func TestCloseIsSafe(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	never := r.host(r.options())
	never.Close()
	never.Close()
	if err := never.Start(t.Context()); err == nil {
		t.Error("a closed host started")
	}
	h := r.start(r.options())
	if err := h.Start(t.Context()); err == nil {
		t.Error("a host started twice")
	}
	chain := selectorOf(t, h, "selector-x")
	h.Close()
	h.Close()
	if _, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{}); err == nil {
		t.Error("a closed host answered")
	}
}
