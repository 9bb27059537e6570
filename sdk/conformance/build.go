package conformance

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds the plugin in the current directory under the directory's name, as `go build` does, and returns the path of
// the binary: conformance.Provider(t, conformance.Binary(conformance.Build(t))).
func Build(t testing.TB) string {
	t.Helper()
	source, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(source))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}
