package secret

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newBox(t *testing.T) *Box {
	t.Helper()
	b := NewBox(filepath.Join(t.TempDir(), "keyset.json"))
	if err := b.create(); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealedTextsOpenOnlyAsTheyWere(t *testing.T) {
	b := newBox(t)
	text := []byte(`{"token":"SECRET-MARK-1"}`)
	sealed, err := b.Seal("here", text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Open("here", sealed); err != nil || string(got) != string(text) {
		t.Errorf("%q %v", got, err)
	}
	if !b.Same("here", sealed, text) || b.Same("here", sealed, append(text, ' ')) || b.Same("there", sealed, text) || b.Same("here", string(text), text) {
		t.Error("the keyed hash does not tell what is the same")
	}
	again, err := b.Seal("here", text)
	if err != nil || again == sealed {
		t.Error("sealed the same twice", err)
	}
	raw, err := base64.RawStdEncoding.DecodeString(sealed[strings.IndexByte(sealed[len(version):], '.')+len(version)+1:])
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	for name, c := range map[string]struct{ place, text string }{
		"another place":  {"there", sealed},
		"changed":        {"here", sealed[:strings.LastIndexByte(sealed, '.')+1] + base64.RawStdEncoding.EncodeToString(raw)},
		"cut":            {"here", sealed[:len(sealed)-8]},
		"plain":          {"here", string(text)},
		"empty":          {"here", ""},
		"only a version": {"here", version},
		"no base64":      {"here", version + "%.%"},
		"another keyset": {"here", must(newBox(t).Seal("here", text))},
	} {
		if got, err := b.Open(c.place, c.text); !errors.Is(err, ErrUnreadable) || got != nil || strings.Contains(err.Error(), "MARK") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

func TestFile(t *testing.T) {
	b := newBox(t)
	info, err := os.Stat(b.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	before, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.create(); !errors.Is(err, os.ErrExist) {
		t.Error("a keyset that is there:", err)
	}
	if now, err := os.ReadFile(b.path); err != nil || string(now) != string(before) {
		t.Error("it was overwritten", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(b.path), ".keyset-*")); err != nil || len(left) > 0 {
		t.Error("left behind:", left, err)
	}

	t.Run("a link stays one", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link.json")
		if err := os.Symlink(b.path, link); err != nil {
			t.Fatal(err)
		}
		if _, _, err := NewBox(link).change((*keyset).withNewPrimary); err != nil {
			t.Fatal(err)
		}
		if target, err := os.Readlink(link); err != nil || target != b.path {
			t.Error(target, err)
		}
		// A box that has read the file before takes up the new key.
		sealed, err := NewBox(link).Seal("here", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Open("here", sealed); err != nil || string(got) != "x" {
			t.Error(string(got), err)
		}
	})

	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"open to its group": {string(before), 0o640, "chmod 600"},
		"open to all":       {string(before), 0o604, "chmod 600"},
		"empty":             {"", 0o600, "no Tink keyset"},
		"cut":               {string(before[:len(before)/2]), 0o600, "no Tink keyset"},
		"something else":    {`{"token": "SECRET-MARK-1"}`, 0o600, "no Tink keyset"},
	} {
		path := filepath.Join(t.TempDir(), "keyset.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := NewBox(path).Seal("here", []byte("x"))
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "MARK") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Without the file nothing is sealed, though the keys are known: it would be lost with this process.
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Seal("here", []byte("x")); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
}
