package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

// The whole path on PostgreSQL: placed, run, logs stored, cancelled.
func TestPostgres(t *testing.T) {
	pg, err := postgres.Start(t.Context())
	if errors.Is(err, postgres.ErrNotInstalled) && !postgres.Required() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(o *stack.ServerOptions) {
		o.Env = append(o.Env, "NAGELFLUH_DATABASE="+pg.DSN)
	})
	jobs := w.watchJobs()

	plain := w.submit(submission("plain", 0, "sh", "-c", "echo from plain; exit 7"))
	gpu := w.submit(submission("train", 1, "echo", "from train"))
	endless := w.submit(submission("endless", 0, "sleep", "3600"))
	w.until("the endless job runs", minute, func() (bool, error) {
		v := w.get(endless.ID)
		return v.State == "running", fmt.Errorf("it is %s: %s", v.State, v.Attempt.Reason)
	})
	if _, err := w.CLI(t.Context(), "cancel", endless.ID); err != nil {
		t.Error(err)
	}
	w.allEnded(minute)
	for _, c := range []struct {
		id, state, cluster string
		exit               int
	}{
		{plain.ID, "failed", "Default Cluster", 7},
		{gpu.ID, "succeeded", "gpu", 0},
		{endless.ID, "cancelled", "Default Cluster", -1},
	} {
		v := w.get(c.id)
		if v.State != c.state || v.Attempt.ClusterName != c.cluster {
			t.Errorf("%s is %s on %q, want %s on %q", v.ProcessName, v.State, v.Attempt.ClusterName, c.state, c.cluster)
		}
		if c.exit >= 0 && (v.Attempt.ExitCode == nil || *v.Attempt.ExitCode != c.exit) {
			t.Errorf("%s: exit code %v, want %d", v.ProcessName, v.Attempt.ExitCode, c.exit)
		}
		if on := jobs.of(c.id); len(on) != 1 {
			t.Errorf("%s had Jobs on %v, want one", v.ProcessName, on)
		}
	}
	if out, err := w.CLI(t.Context(), "logs", gpu.ID); err != nil || out != "from train\n" {
		t.Errorf("log %q, %v", out, err)
	}
}
