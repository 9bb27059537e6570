package plugin

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that is killed leaves its directory; the next one removes it, and no other's.
func TestSocketDirectoriesOfKilledServers(t *testing.T) {
	parent, err := os.MkdirTemp("/tmp", "ngf-t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	made := func() *socketRoot {
		t.Helper()
		r, err := newSocketRoot(parent)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	left := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	killed, alive := made(), made()
	beginning := filepath.Join(parent, "ngf-beginning")
	if err := os.Mkdir(beginning, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = killed.lock.Close() // as the system does when a process is killed
	next := made()
	if left(killed.dir) {
		t.Error("the directory of the killed server is left")
	}
	for _, dir := range []string{alive.dir, next.dir, beginning} {
		if !left(dir) {
			t.Errorf("%s is gone", dir)
		}
	}
	alive.remove()
	next.remove()
	if left(alive.dir) || left(next.dir) {
		t.Error("a directory is left after its end")
	}
}
