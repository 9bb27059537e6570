package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

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
	sockets, err := filepath.Glob(filepath.Join(h.root.dir, "*", "plugin*"))
	if err != nil || len(sockets) == 0 {
		t.Fatalf("%v %v", sockets, err)
	}
	root := h.root.dir
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
	if dirs, _ := os.ReadDir(root); len(dirs) != 2 { // and the lock
		t.Errorf("%v", dirs)
	}
	h.Close()
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}
