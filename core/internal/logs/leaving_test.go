package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// The log of a pod that is gone is whole when it came to an orderly end and the pod's last state, which may come a moment
// later, says that its container had ended.
func TestEndIsKnownOnlyAfterThePodIsGone(t *testing.T) {
	r := newRig(t, nil)
	gone := false
	r.k.faults(func(q request) (f fault) {
		if gone {
			f = fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
		}
		return f
	})
	r.k.print("pod/main", lines(1, 3)...)
	r.ensure(pod("pod", running("main")))
	r.k.await(t, "its log is followed", func() bool { return r.k.open == 1 })
	r.k.mu.Lock()
	gone = true
	r.k.mu.Unlock()
	r.k.end("pod/main")
	r.k.await(t, "the pod is asked for in vain", func() bool { return r.k.opens["pod/main"] > 2 && r.k.open == 0 })
	r.ensure(pod("pod", exited("main", 143)))
	if m := r.finish(process.Cancelled); !m.Complete() {
		t.Errorf("the manifest is %+v", m)
	}
}
