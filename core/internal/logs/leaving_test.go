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
