package logs

import (
	"context"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The cluster is removed by force while a container prints: what was read is stored, and readers get their end at once,
// also when the cluster is silent.
func TestB54AbandonEndsTheStreams(t *testing.T) {
	for name, frozen := range map[string]bool{"reachable": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.k.print("pod/main", lines(1, 10)...)
			r.ensure(pod("pod", running("main")))
			g := r.read(FollowOptions{Follow: true})
			g.awaitBytes(len(text(lines(1, 10))))
			if frozen {
				r.k.faults(func(request) fault { return fault{freeze: true} })
			}
			a := r.rows.set(id, func(a *process.Attempt) {
				a.State, a.ReasonCode, a.Reason = process.Unknown, "cluster-removed", `Cluster "c" was removed by force.`
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := r.keeper.Abandon(ctx, a); err != nil {
				t.Fatal(err)
			}
			r.rows.set(id, func(a *process.Attempt) { a.LogsStored = true })
			m, err := r.archive.Manifest(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			checkGap(t, r, m, GapRemoved)
			got := g.wait()
			if want := r.stored("pod", "main"); got != want {
				t.Error(differ(got, want))
			}
			if end := g.end(); end == nil || end.State != process.Unknown || end.Reason != a.Reason || end.Complete {
				t.Errorf("end %+v", end)
			}
			if err := r.keeper.Abandon(ctx, r.attempt()); err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// A new process finds only the spool of an attempt whose cluster is gone.
func TestB54AbandonAfterARestart(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", lines(1, 10)...)
	r.ensure(pod("pod", running("main")))
	g := r.read(FollowOptions{Follow: true})
	g.awaitBytes(len(text(lines(1, 10))))
	g.cancel()
	r.restart()
	a := r.rows.set(id, func(a *process.Attempt) { a.State = process.Unknown })
	if err := r.keeper.Abandon(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	m, err := r.archive.Manifest(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	checkGap(t, r, m, GapRemoved)
}
