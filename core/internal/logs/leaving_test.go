package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The pods of an attempt that is being cancelled are written down before they are deleted: a server that is killed then
// finds in no cluster that they ever were.
func TestLeavingPodsAreWrittenDownAtOnce(t *testing.T) {
	r := newRig(t, nil)
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Cancelling })
	r.ensure(pod("pod", running("main")))
	data, err := os.ReadFile(filepath.Join(spoolDir(r.o.SpoolDir, id), stateFile))
	if err != nil || !strings.Contains(string(data), `"name":"pod"`) {
		t.Fatalf("%s, %v", data, err)
	}
}

// A pod that was waiting when the server was killed, and is gone when the next one looks, may have started and printed in
// between: its log says so instead of being empty and whole.
func TestPodThatStartedWhileNobodyLooked(t *testing.T) {
	r := newRig(t, nil)
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Cancelling })
	r.ensure(pod("pod", waiting("main", "ContainerCreating")))
	r.restart()
	m := r.finish(process.Cancelled)
	if m.Complete() {
		t.Errorf("the log is called complete: %+v", m)
	}
	if text := r.stored("pod", "main"); !strings.Contains(text, "[nagelfluh] the log may be incomplete here") {
		t.Errorf("the log is %q", text)
	}
}

// One that the next server still sees waiting has printed nothing.
func TestPodThatNeverStartedIsSilent(t *testing.T) {
	r := newRig(t, nil)
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Cancelling })
	r.ensure(pod("pod", waiting("main", "ContainerCreating")))
	r.restart()
	r.ensure(pod("pod", waiting("main", "ContainerCreating")))
	if m := r.finish(process.Cancelled); !m.Complete() || m.Pods[0].Containers[0].Started {
		t.Errorf("the manifest is %+v", m)
	}
}
