package logs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// A leader that was paused while it stored comes back after its successor has stored the whole log and the pod is gone:
// what it has changes nothing, and nothing of it stays.
func TestB46_LateStoreOfAPausedLeader(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", printed{at: t0, text: "one\n"}, printed{at: t0, text: "two\n"})
	r.k.end("pod/main")
	r.ensure(pod("pod", exited("main", 0)))
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))

	late := m
	late.Pods = []PodLog{{Name: "pod", Containers: []ContainerLog{{Name: "main", Started: true, Bytes: 4}}}}
	stale := func(string, ContainerLog) io.Reader { return strings.NewReader("one\n") }
	if err := r.archive.store(t.Context(), late, stale); err != nil {
		t.Fatal(err)
	}
	if text := r.stored("pod", "main"); text != "one\ntwo\n" {
		t.Errorf("the log is now %q", text)
	}
	if got, err := r.archive.Manifest(t.Context(), id); err != nil || got.Copy != m.Copy || !got.Complete() {
		t.Errorf("%+v, %v", got, err)
	}
	files, err := filepath.Glob(filepath.Join(r.archive.dir, id, "*", "pod", "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("the archive holds %v, %v", files, err)
	}
}

// A store that fails leaves nothing that a reader would take for the log, and the next one succeeds.
func TestStoreThatFailsHalfway(t *testing.T) {
	r := newRig(t, nil)
	m := Manifest{AttemptID: id, Pods: []PodLog{{Name: "pod", Containers: []ContainerLog{
		{Name: "main", Started: true, Bytes: 4}, {Name: "sidecar", Started: true, Bytes: 4},
	}}}}
	broken := errors.New("the spool cannot be read")
	err := r.archive.store(t.Context(), m, func(_ string, c ContainerLog) io.Reader {
		if c.Name == "main" {
			return strings.NewReader("one\n")
		}
		return failing{broken}
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := r.archive.Open(t.Context(), id, "pod", "main", 0, 0); !errors.Is(err, ErrMissing) {
		t.Errorf("the log can be opened: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(r.archive.dir, id, "*", "pod", "*.log"))
	if err != nil || len(files) != 0 {
		t.Errorf("left over: %v, %v", files, err)
	}
	if err := r.archive.store(t.Context(), m, func(string, ContainerLog) io.Reader { return strings.NewReader("two\n") }); err != nil {
		t.Fatal(err)
	}
	if text := r.stored("pod", "sidecar"); text != "two\n" {
		t.Errorf("the log is %q", text)
	}
	if info, err := os.Stat(filepath.Join(r.archive.dir, manifestKey(id))); err != nil || info.Size() == 0 {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
