package postgres

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestStartAndStop(t *testing.T) {
	s, err := Start(t.Context())
	if errors.Is(err, ErrNotInstalled) && !Required() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", filepath.Join(s.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Error("a server that is ready does not answer:", err)
	} else {
		c.Close()
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files are left in %s: %v", s.dir, err)
	}
}
