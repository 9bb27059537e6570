package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func TestPlacedIsOneWriteWithDecisionPinAndIntent(t *testing.T) {
	r := newRig(t)
	id := r.add("away", nil)
	r.start()
	v := r.submit(1)[0]
	row := r.state(v, process.Creating)
	if row.ClusterID != id || row.Namespace != "jobs" || row.JobName == "" || row.PlacedAt == nil ||
		row.IntentAt == nil || row.CreateDeadline == nil || row.CreateDeadline.Sub(*row.IntentAt) != r.options.CreateWindow {
		t.Errorf("row: %+v", row)
	}
	decisions, err := r.db.Decisions(t.Context(), row.ID)
	if err != nil || len(decisions) != 1 || decisions[0].ClusterID != id {
		t.Errorf("decisions %+v, %v", decisions, err)
	}
}

func wait(reason string) placement.Decision {
	return placement.Decision{Outcome: placement.Wait, ReasonCode: "no-room", Reason: reason}
}

func TestWaitingAttemptsAreAskedAgainInOrderWhenSomethingChanges(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", a)
	var room atomic.Int32
	r.placer.set(func(string, placement.Request) placement.Decision {
		if room.Add(-1) >= 0 {
			return placement.Decision{Outcome: placement.Placed, ClusterID: id}
		}
		room.Add(1)
		return wait("Every GPU is taken.")
	})
	r.start()
	versions := r.submit(5)
	for _, v := range versions {
		row := r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == "no-room" })
		if time.Until(row.NextTryAt) < time.Minute {
			t.Errorf("next try in %s", time.Until(row.NextTryAt))
		}
	}
	// One at a time the oldest gets what became free.
	for i, v := range versions {
		r.quiet()
		room.Store(1)
		if i == 0 {
			c, err := r.db.Cluster(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			c.Observed.Health = "ready"
			if err := r.db.Observe(t.Context(), id, c.Observed); err != nil {
				t.Fatal(err)
			}
		} else {
			a.drop(false) // the attempt before ends, as unknown
		}
		r.state(v, process.Queued)
	}
	for _, v := range versions {
		decisions, err := r.db.Decisions(t.Context(), v.Attempt.ID)
		if err != nil || len(decisions) != 2 {
			t.Errorf("%d decisions stored, want 2: wait and placed (%v)", len(decisions), err)
		}
	}
}

// quiet waits until everyone that waits has been asked and nobody is being asked.
func (r *rig) quiet() {
	r.t.Helper()
	p := r.d.place
	r.when("everyone to have been asked", func() bool {
		p.waiting.mu.Lock()
		defer p.waiting.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		due := slices.ContainsFunc(p.waiting.list, func(e waiter) bool { return e.asked < p.waiting.generation })
		return !due && len(p.asking) == 0
	}, nil)
}

func TestWaitingSurvivesARestart(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", a)
	r.placer.set(func(string, placement.Request) placement.Decision { return wait("Cordoned.") })
	r.start()
	v := r.submit(1)[0]
	r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == "no-room" })
	r.stop()
	r.placer.to(id)
	r.start()
	r.state(v, process.Queued)
}

func TestCancelledWhileWaitingIsAskedNoMore(t *testing.T) {
	r := newRig(t)
	r.add("a", nil)
	r.placer.set(func(string, placement.Request) placement.Decision { return wait("No.") })
	r.start()
	v := r.submit(1)[0]
	r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == "no-room" })
	r.cancel(v)
	r.state(v, process.Cancelled)
	r.when("the list to be empty", func() bool {
		r.d.place.waiting.mu.Lock()
		defer r.d.place.waiting.mu.Unlock()
		return len(r.d.place.waiting.list) == 0
	}, nil)
}

func TestPluginErrorIsRetriedAndShown(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", a)
	var n atomic.Int32
	r.placer.set(func(string, placement.Request) placement.Decision {
		if n.Add(1) <= 2 {
			return placement.Decision{Outcome: placement.Retry, ReasonCode: "plugin-error", Reason: "selector-gpu: it crashed"}
		}
		return placement.Decision{Outcome: placement.Placed, ClusterID: id}
	})
	r.start()
	v := r.submit(1)[0]
	row := r.until(v, "the error to be shown", func(a process.Attempt) bool { return a.ReasonCode == "plugin-error" })
	if row.ErrorSince == nil || row.Tries < 1 {
		t.Errorf("row: %+v", row)
	}
	row = r.state(v, process.Queued)
	if row.ErrorSince != nil || row.Tries != 0 {
		t.Errorf("row: %+v", row)
	}
	decisions, err := r.db.Decisions(t.Context(), row.ID)
	if err != nil || len(decisions) != 2 {
		t.Errorf("%d decisions stored, want 2: the same error once, then placed (%v)", len(decisions), err)
	}
}

func TestPluginErrorFailsAfterTheLimit(t *testing.T) {
	r := newRig(t)
	r.options.PlacingErrorLimit = 200 * time.Millisecond
	r.add("a", nil)
	r.placer.set(func(string, placement.Request) placement.Decision {
		return placement.Decision{Outcome: placement.Retry, ReasonCode: "plugin-error", Reason: "selector-gpu: it crashed"}
	})
	r.start()
	end := r.state(r.submit(1)[0], process.Failed)
	if end.ReasonCode != reasonErrorLimit || !strings.Contains(end.Reason, "it crashed") {
		t.Errorf("reason %s: %s", end.ReasonCode, end.Reason)
	}
}

func TestRefusedForGoodFails(t *testing.T) {
	r := newRig(t)
	r.add("a", nil)
	r.placer.set(func(string, placement.Request) placement.Decision {
		return placement.Decision{Outcome: placement.Fail, ReasonCode: "does-not-fit", Reason: "needs 16, most is 8"}
	})
	r.start()
	end := r.state(r.submit(1)[0], process.Failed)
	if end.Reason != "needs 16, most is 8" || end.EndedAt == nil {
		t.Errorf("row: %+v", end)
	}
}

func TestBurstIsPlacedInOrderAndEachOnce(t *testing.T) {
	r := newRig(t)
	r.options.Placings = 1
	id := r.add("away", nil)
	r.placer.to(id)
	r.start()
	versions := r.submit(300)
	r.state(versions[299], process.Creating)
	r.when("all to be placed", func() bool {
		n, err := r.db.LiveAttempts(t.Context(), id)
		return err == nil && len(n) == 300
	}, nil)
	asked := r.placer.asks()
	if len(asked) != 300 || !slices.IsSorted(asked) {
		t.Errorf("%d questions, in order: %v", len(asked), slices.IsSorted(asked))
	}
	if n := len(r.eventsOf(event.Decided)); n != 300 {
		t.Errorf("%d decisions told, want 300", n)
	}
}

func (r *rig) eventsOf(kind event.Kind) (all []event.Event) {
	r.t.Helper()
	for after := int64(0); ; {
		page, err := r.db.Events(r.t.Context(), store.EventFilter{After: after, Kinds: []event.Kind{kind}, Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		if all = append(all, page...); len(page) < 1000 {
			return all
		}
		after = page[len(page)-1].Seq
	}
}

func TestWaitingListNeitherStarvesItsEndNorForgetsTheOrder(t *testing.T) {
	w := newWaiting()
	const n = 10_000
	for i := range n {
		w.add(fmt.Sprintf("%05d", i), 0)
	}
	seen := map[string]bool{}
	for i := range 2 * n {
		if i%100 == 0 {
			w.changed() // faster than the list is gone through
		}
		id := w.next()
		if i%100 == 0 && i%2 == 0 && id != "00000" && id == "" {
			t.Fatal("nobody is due after a change")
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d were asked", len(seen), n)
	}
	for w.next() != "" {
	}
	w.changed()
	if first := []string{w.next(), w.next()}; !slices.Contains(first, "00000") {
		t.Errorf("after a change %v were asked first", first)
	}
}
