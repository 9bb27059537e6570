package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// buildOutside builds a plugin in a module of its own outside of the repository, against the sdk alone, into dir.
func buildOutside(t *testing.T, dir, kind, name string) {
	t.Helper()
	src := t.TempDir()
	code, err := os.ReadFile(filepath.Join("testdata", "outside", kind, "main.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", string(code))
	write("go.mod", fmt.Sprintf(`module example.org/%s

go 1.26.0

require github.com/nagelfluh/nagelfluh/sdk v0.0.0

replace github.com/nagelfluh/nagelfluh/sdk => %s
`, name, filepath.Join(root, "sdk")))
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", filepath.Join(dir, name), "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
}

// pluginDir is a plugin directory with copies of the built plugins.
func pluginDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(root, "bin", "plugins", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A provider and a selector written outside of the repository against the sdk alone, dropped into the plugin directory:
// listed and used without any change to core. What such a selector does wrong keeps its jobs waiting, with the reason;
// they go nowhere else.
func TestOutsidePlugins(t *testing.T) {
	dir := pluginDir(t, "provider-sameasbackend", "provider-kubeconfig", "selector-gpu")
	buildOutside(t, dir, "provider", "provider-borrowed")
	buildOutside(t, dir, "selector", "selector-by-type")
	w := newWorld(t, func(o *stack.ServerOptions) { o.PluginDir = dir })
	jobs := w.watchJobs()

	out, err := w.CLI(t.Context(), "plugins", "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"provider-borrowed", "selector-by-type", "borrowed"} {
		if !strings.Contains(out, name) {
			t.Errorf("`plugins list` does not show %s:\n%s", name, out)
		}
	}

	kubeconfig, err := os.ReadFile(clusters.Kubeconfig("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	// It is the cluster gpu a second time.
	r, err := w.Do(t.Context(), "POST", "/clusters?confirm_identity=true", map[string]any{
		"name": "friend", "type": "borrowed", "provider_config": map[string]string{"access": string(kubeconfig)},
	})
	if err != nil || r.Status != 201 {
		t.Fatalf("add a cluster of the outside type: %v, status %d: %s", err, r.Status, r.Body)
	}
	if strings.Contains(string(r.Body), "token") {
		t.Errorf("the answer shows the provider config: %s", r.Body)
	}

	typed := func(name, kind string) version {
		body := submission(name, 0, "true")
		body["type"] = kind
		return w.submit(body)
	}
	friendly := typed("friendly", "friendly")
	w.until("the friendly job has succeeded", minute, func() (bool, error) {
		v := w.get(friendly.ID)
		return v.State == "succeeded", fmt.Errorf("it is %s on %q: %s", v.State, v.Attempt.ClusterName, v.Attempt.Reason)
	})
	if v := w.get(friendly.ID); v.Attempt.ClusterName != "friend" {
		t.Errorf("the friendly job is on %q", v.Attempt.ClusterName)
	}

	for kind, says := range map[string]string{
		"silent": "selector-by-type", // an answer that was never given
		"lost":   "no-such-cluster",
		"panic":  "out of my depth",
	} {
		v := typed(kind, kind)
		w.until("the job of the "+kind+" answer says why it waits", minute, func() (bool, error) {
			v = w.get(v.ID)
			return strings.Contains(v.Attempt.Reason, says), fmt.Errorf("it is %s: %q", v.State, v.Attempt.Reason)
		})
		if v.State != "placing" || len(jobs.of(v.ID)) != 0 {
			t.Errorf("%s: %s with Jobs on %v, want placing and none", kind, v.State, jobs.of(v.ID))
		}
	}
}

// A required selector that is not there: every attempt waits in placing and says so; when it is back, they go on.
func TestRequiredPluginVanished(t *testing.T) {
	dir := pluginDir(t, "provider-sameasbackend", "provider-kubeconfig", "selector-gpu")
	config := filepath.Join(t.TempDir(), "nagelfluh.yaml")
	text := "plugins:\n  selector-gpu:\n    required: true\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *stack.ServerOptions) {
		o.PluginDir, o.Args = dir, []string{"--config", config}
	})
	jobs := w.watchJobs()

	if err := w.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "selector-gpu"), filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	v := w.submit(submission("train", 1, "true"))
	w.until("the job says which plugin is missing", minute, func() (bool, error) {
		v = w.get(v.ID)
		return strings.Contains(v.Attempt.Reason, "selector-gpu"), fmt.Errorf("it is %s: %q", v.State, v.Attempt.Reason)
	})
	if v.State != "placing" || len(jobs.of(v.ID)) != 0 {
		t.Errorf("%s with Jobs on %v, want placing and none", v.State, jobs.of(v.ID))
	}

	if err := w.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "gone"), filepath.Join(dir, "selector-gpu")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if all := w.allEnded(2 * minute); all[0].State != "succeeded" || all[0].Attempt.ClusterName != "gpu" {
		t.Errorf("%s on %q", all[0].State, all[0].Attempt.ClusterName)
	}
}

// A default cluster that is no candidate: the attempt waits in placing, says why, goes nowhere else, and goes on when the
// cluster is back.
func TestDefaultClusterIsNoCandidate(t *testing.T) {
	w := newWorld(t, nil)
	jobs := w.watchJobs()
	set := func(active bool) {
		t.Helper()
		r, err := w.Do(t.Context(), "PATCH", "/clusters/default-cluster-00000000-0000-0000-0000-000000000000", map[string]bool{"active": active})
		if err != nil || r.Status != 200 {
			t.Fatalf("patch the default cluster: %v, status %d: %s", err, r.Status, r.Body)
		}
	}
	set(false)
	v := w.submit(submission("plain", 0, "true"))
	w.until("the job says why it waits", minute, func() (bool, error) {
		v = w.get(v.ID)
		return strings.Contains(v.Attempt.Reason, "retired"), fmt.Errorf("it is %s: %q", v.State, v.Attempt.Reason)
	})
	if v.State != "placing" || len(jobs.of(v.ID)) != 0 {
		t.Errorf("%s with Jobs on %v, want placing and none", v.State, jobs.of(v.ID))
	}
	set(true)
	if all := w.allEnded(minute); all[0].State != "succeeded" {
		t.Errorf("%s: %s", all[0].State, all[0].Attempt.Reason)
	}
}
