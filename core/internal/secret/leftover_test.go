package secret

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A writer that was killed between the writing of a keyset and the rename leaves keys that are dropped later. They go with the
// next write; nothing else beside the keyset does.
func TestLeftoversOfKilledWriters(t *testing.T) {
	// A blank-free name would hide that the directory's name is no pattern.
	dir := filepath.Join(t.TempDir(), "[state]")
	b := NewBox(filepath.Join(dir, "keyset.json"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.create(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	put := func(name string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	// What a killed writer leaves is named by what a write that fails at its last step would have published.
	var left string
	if err := writeFile(b.path, mustKeyset(t, b.path), func(from, _ string) error { left = filepath.Base(from); return os.ErrClosed }); err == nil {
		t.Fatal("published")
	}
	put(left, old)
	put(".keyset-backup", old)
	put(".keyset-20250101", old)
	put(".keyset-1.nagelfluh-tmp", time.Now())
	if err := os.Mkdir(filepath.Join(dir, ".keyset-2.nagelfluh-tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b.path, filepath.Join(dir, ".keyset-3.nagelfluh-tmp")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.change((*keyset).withNewPrimary); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	want := []string{".keyset-1.nagelfluh-tmp", ".keyset-2.nagelfluh-tmp", ".keyset-20250101", ".keyset-3.nagelfluh-tmp", ".keyset-backup", "keyset.json"}
	if names = slices.DeleteFunc(names, func(s string) bool { return s == "keyset.json.lock" }); !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}

// A keyset that is a pipe, a device or a directory is an error and holds nothing up.
func TestKeysetIsARegularFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir, os.DevNull} {
		if _, _, err := readFile(path); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}

func mustKeyset(t *testing.T, path string) *keyset {
	t.Helper()
	keys, _, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
