package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// reasonMaxRuntime is the reason code of an attempt that ran for as long as it may.
const reasonMaxRuntime = "max-runtime"

// limits are what an attempt is stopped by.
type limits struct {
	runtime *int64 // most seconds of running time; nil: none
	whose   string // that limit is, as the end of a sentence
	start   map[string]int64
}

// learnLimits notes the limits of an attempt whose version is at hand.
func (w *worker) learnLimits(a *attempt) {
	if a.version == nil || a.limits != nil {
		return
	}
	spec, c := a.version.Spec, w.row()
	l := &limits{runtime: spec.MaxRuntimeSeconds, whose: "the limit of the process", start: spec.StartLimits}
	if c.MaxRuntime != nil && (l.runtime == nil || *c.MaxRuntime < *l.runtime) {
		l.runtime, l.whose = c.MaxRuntime, fmt.Sprintf("the limit of cluster %q", c.Name)
	}
	a.limits = l
}

func (w *worker) needLimits(ctx context.Context, a *attempt, row process.Attempt) error {
	if a.limits != nil {
		return nil
	}
	if err := w.readVersion(ctx, a, row); err != nil {
		return err
	}
	w.learnLimits(a)
	a.version = nil
	return nil
}

// left says how long the attempt may go on as it is, zero for as long as it likes, and starts stopping it when that is
// over.
func (w *worker) left(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	switch {
	case row.State == process.Running:
		return w.runtimeLeft(ctx, a, row)
	case row.State == process.Queued && row.BlockedBy != "" && row.BlockedSince != nil:
		return w.startLeft(ctx, a, row)
	}
	return 0, nil
}

// runtimeLeft counts the time of every run, and not that between them.
func (w *worker) runtimeLeft(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if err := w.needLimits(ctx, a, row); err != nil || a.limits.runtime == nil {
		return 0, err
	}
	limit := time.Duration(*a.limits.runtime) * time.Second
	if left := limit - ran(row, w.d.now()); left > 0 {
		return left, nil
	}
	return 0, w.stopFor(ctx, a, row, reasonMaxRuntime, fmt.Sprintf("Stopped: it ran for its maximal runtime of %s, %s.", limit, a.limits.whose))
}

// ran is for how long the attempt has run. A start is not taken to be before the Job was made by our clock, so that a
// cluster's clock that is behind stops nothing early.
func ran(row process.Attempt, now time.Time) time.Duration {
	if row.RunStartedAt == nil || row.RunEnded {
		return row.Ran
	}
	start := *row.RunStartedAt
	if row.JobAt != nil && start.Before(*row.JobAt) {
		start = *row.JobAt
	}
	return row.Ran + max(0, now.Sub(start))
}

// startLeft counts the time since the attempt has been blocked by one and the same cause. While the cluster does not
// answer nothing is known of that, and nothing is stopped.
func (w *worker) startLeft(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if row.UnreachableSince != nil {
		return 0, nil // its return wakes everyone
	}
	if !w.reach.answers() {
		return lagging, nil
	}
	if err := w.needLimits(ctx, a, row); err != nil {
		return 0, err
	}
	limit, whose := w.d.o.StartLimits[row.BlockedBy], fmt.Sprintf("the server's limit start_limits.%s", row.BlockedBy)
	if row.BlockedBy == process.LimitKueue {
		limit, whose = w.d.o.KueueLimit, "long enough"
	}
	if own, set := a.limits.start[row.BlockedBy]; set {
		limit, whose = time.Duration(own)*time.Second, fmt.Sprintf("the process's limit spec.start_limits.%s", row.BlockedBy)
	}
	if limit <= 0 {
		return 0, nil
	}
	if left := limit - w.d.now().Sub(*row.BlockedSince); left > 0 {
		return left, nil
	}
	return 0, w.stopFor(ctx, a, row, row.ReasonCode, fmt.Sprintf("%s Stopped: blocked for %s, %s.", row.Reason, limit, whose))
}

// stopFor stores what the attempt is stopped for before anything is deleted.
func (w *worker) stopFor(ctx context.Context, a *attempt, row process.Attempt, code, reason string) error {
	next, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != row.State || a.StopCode != "" {
			return nil, process.ErrNoChange
		}
		a.StopCode, a.ReasonCode, a.Reason = code, code, reason
		return []event.Event{reasonNow(reason)}, nil
	})
	if err == nil {
		w.enqueue(next)
	}
	return err
}

// block starts, keeps or stops the clock of the start limits.
func block(a *process.Attempt, by string, now time.Time) (changed bool) {
	if a.BlockedBy == by {
		return false
	}
	a.BlockedBy, a.BlockedSince = by, nil
	if by != "" {
		a.BlockedSince = &now
	}
	return true
}

// unblock leaves the time of an outage out of that clock.
func unblock(a *process.Attempt, outage time.Duration) {
	if a.BlockedSince != nil && outage > 0 {
		a.BlockedSince = new(a.BlockedSince.Add(outage))
	}
}
