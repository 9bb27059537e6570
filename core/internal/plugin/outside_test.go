package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	domain "github.com/nagelfluh/nagelfluh/core/internal/process"
)

// buildOutside builds a plugin in a module of its own, against the sdk alone.
func buildOutside(t testing.TB, kind, to string) {
	t.Helper()
	sdk, err := filepath.Abs("../../../sdk")
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	put := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(module, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) []byte {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	put("main.go", read(filepath.Join("testdata", "outside", kind, "main.go.txt")))
	put("go.sum", read(filepath.Join(sdk, "go.sum")))
	put("go.mod", fmt.Appendf(nil, "module example.org/%s\n\ngo 1.26.0\n\nrequire github.com/nagelfluh/nagelfluh/sdk v0.0.0\n\nreplace github.com/nagelfluh/nagelfluh/sdk => %s\n", kind, sdk))
	build := exec.Command("go", "build", "-mod=mod", "-o", to, ".")
	build.Dir = module
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// A provider and a selector written outside of the repository against the sdk alone, dropped into the plugin directory,
// are listed and used without any change to core.
func TestOutsidePlugins(t *testing.T) {
	r := newRig(t)
	buildOutside(t, "provider", filepath.Join(r.dir, "provider-outside"))
	buildOutside(t, "selector", filepath.Join(r.dir, "selector-by-type"))
	h := r.start(r.options())

	if p := statusOf(t, h, "provider-outside"); p.State != Running || p.Version != "0.1.0" || len(p.Types) != 1 || p.Types[0] != "outside" {
		t.Errorf("%+v", p)
	}
	if s := statusOf(t, h, "selector-by-type"); s.State != Running || s.Title != "by type" {
		t.Errorf("%+v", s)
	}
	normalised, _, err := h.ValidateConfig(t.Context(), "outside", []byte(`{"server":"https://k","token":"t"}`))
	if err != nil {
		t.Fatal(err)
	}
	connection, err := h.Connect(t.Context(), cluster.Cluster{ID: "c", Type: "outside", ProviderConfig: normalised})
	if err != nil || string(connection.Kubeconfig) != "server: https://k" {
		t.Errorf("%+v %v", connection, err)
	}
	snap := &placement.Snapshot{Candidates: []placement.Candidate{{ID: "a"}, {ID: "b", Labels: map[string]string{"for": "train"}}}}
	chain := selectorOf(t, h, "selector-by-type")
	for kind, want := range map[string]placement.Answer{
		"train": {Kind: placement.Selected, ClusterID: "b", Reason: "it is labelled for train"},
		"other": {Kind: placement.Abstained, Reason: "no cluster is labelled for it"},
	} {
		if a, err := chain.SelectCluster(t.Context(), snap, placement.Request{Process: domain.Process{Type: kind}}); err != nil || a != want {
			t.Errorf("%s: %+v %v", kind, a, err)
		}
	}
	_, err = chain.SelectCluster(t.Context(), snap, placement.Request{Process: domain.Process{Type: "panic"}})
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "selector(selector-by-type): SelectCluster: Internal: the plugin panicked in SelectCluster: not of this type")
	if s := statusOf(t, h, "selector-by-type"); s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}
