package child_test

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
)

// A child that watches the pipe lives on while only its Process is known: the garbage collector closes files that nobody
// refers to.
func TestChildOutlivesTheLastReferenceToItsSpawner(t *testing.T) {
	spawner, err := child.NewSpawner()
	if err != nil {
		t.Fatal(err)
	}
	p, err := spawner.Start(child.Program{Name: "watcher", Path: "/bin/sh", Args: []string{"-c", "cat <&3"}, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(time.Second)
	for range 20 {
		runtime.GC()
		select {
		case <-p.Done():
			t.Fatal(p.Failure())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
