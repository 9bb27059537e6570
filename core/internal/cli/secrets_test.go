package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// The commands work beside a server, which takes up the new key, and without one.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	env := []string{"NAGELFLUH_DATA_DIR=" + dir}
	file := filepath.Join(dir, "keyset.json")
	if code, _, errs := execute(t, env, "", "secrets", "status"); code != ExitError || !strings.Contains(errs, "not up to date") {
		t.Errorf("an empty database: %d %s", code, errs)
	}
	if code, _, errs := execute(t, env, "", "migrate", "up"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := execute(t, env, "", "secrets", "rotate"); code != ExitError || !strings.Contains(errs, "start the server once") {
		t.Errorf("before the first start: %d %s", code, errs)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a command made the keyset")
	}

	box := secret.NewBox(file)
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite:" + filepath.Join(dir, "nagelfluh.db"), Server: true, Sealer: box})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := box.Start(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		t.Helper()
		if _, err := db.CreateCluster(t.Context(), cluster.Cluster{Name: name, Type: "t", ProviderConfig: []byte(`{"token":"geheim"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	var s secret.Status
	status := func() string {
		t.Helper()
		s = secret.Status{}
		code, out, errs := execute(t, env, "", "secrets", "status", "-o", "json")
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != ExitOK && s.Problem == "" {
			t.Fatalf("%d %s %s %v", code, out, errs, err)
		}
		return errs
	}
	for _, step := range []struct {
		args []string
		keys int
	}{{[]string{"secrets", "rotate"}, 2}, {[]string{"secrets", "rotate"}, 3}, {[]string{"secrets", "rotate", "--drop-old"}, 1}} {
		if code, out, errs := execute(t, env, "", step.args...); code != 0 || !strings.Contains(out, "new key") || strings.Contains(out+errs, "geheim") {
			t.Fatalf("%v: %d %s %s", step.args, code, out, errs)
		}
		status()
		if last := s.Keys[len(s.Keys)-1]; len(s.Keys) != step.keys || !last.Primary || last.Configs != 1 || s.File != file {
			t.Errorf("%v: %+v", step.args, s)
		}
	}
	create("b") // with the new key
	if status(); s.Keys[0].Configs != 2 {
		t.Errorf("%+v", s)
	}
	if code, out, errs := execute(t, env, "", "secrets", "status"); code != 0 || !strings.Contains(out, s.Keys[0].Fingerprint) || !strings.Contains(errs, file) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if errs := status(); !strings.Contains(errs, "the keyset is missing") {
		t.Errorf("without the file: %s %+v", errs, s)
	}
}
