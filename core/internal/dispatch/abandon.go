package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// reasonClusterRemoved is the reason code of attempts whose cluster was removed by force.
const reasonClusterRemoved = "cluster-removed"

const (
	// abandonFor bounds the calls to a cluster that is being removed: nobody waits for one that does not answer.
	abandonFor = 5 * time.Second
	// abandonLogsFor bounds what is done for the logs of attempts that ended so.
	abandonLogsFor = time.Minute
	abandonCalls   = 16
)

// Abandon implements cluster.Remover. The workers are stopped first, so that no create request leaves any more; one that
// has left and has no answer may still take effect, and its attempt says so.
//
// An attempt of which no container ever ran, and whose Job is deleted, failed: it may be submitted again. Of any other
// nobody will read the result, so it is unknown.
func (d *Dispatcher) Abandon(ctx context.Context, c cluster.Cluster) (cluster.Abandonment, error) {
	w := d.fleet.bar(c)
	live, err := d.o.Store.LiveAttempts(ctx, c.ID)
	if err != nil {
		return cluster.Abandonment{}, fmt.Errorf("read its live attempts: %w", err)
	}
	out := cluster.Abandonment{Attempts: make([]cluster.AbandonedAttempt, len(live))}
	errs := make([]error, len(live))
	calls, cancel := context.WithTimeout(ctx, abandonFor)
	defer cancel()
	// The first call says whether there is any use in more of them.
	out.Reached = !w.reach.blocked() && w.probe(calls) == nil
	if out.Reached {
		for _, row := range live {
			if w.fenceOf(row.Namespace).state == leaseUnknown {
				_ = w.checkLease(calls, row.Namespace) // else nothing is deleted there, and the answer says so
			}
		}
	}
	slots := make(chan struct{}, abandonCalls)
	var wg sync.WaitGroup
	for i, row := range live {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			gone := false
			if out.Reached {
				gone = w.takeAway(calls, row)
			}
			a, err := d.abandon(ctx, c, row, gone)
			errs[i] = err
			out.Attempts[i] = cluster.AbandonedAttempt{
				AttemptID: a.ID, VersionID: a.VersionID, Was: string(row.State), State: string(a.State), Reason: a.Reason,
				Namespace: a.Namespace, JobName: a.JobName, MayStillRun: !gone,
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	d.place.changed()
	d.fleet.ending.Go(func() { d.closeLogs(context.Background(), c.ID) })
	return out, nil
}

// Readmit implements cluster.Remover: the cluster gets workers again when it needs them.
func (d *Dispatcher) Readmit(id string) {
	d.fleet.mu.Lock()
	delete(d.fleet.barred, id)
	d.fleet.mu.Unlock()
	d.fleet.refresh()
}

// takeAway deletes the attempt's Job and says whether the cluster has confirmed that none is there to run, or any more.
func (w *worker) takeAway(ctx context.Context, row process.Attempt) bool {
	if row.JobUID != "" {
		return w.remove(ctx, row.Namespace, row.JobName, uidOf(row)) == nil
	}
	j, err := w.get(ctx, row.Namespace, row.JobName)
	switch {
	case err != nil:
		return false
	case j == nil:
		return w.landing(row) <= 0 // else a create request may still take effect
	case !job.Owned(j.Labels, w.d.o.Installation, row.ID):
		return w.landing(row) <= 0 // a stranger's
	}
	return w.remove(ctx, j.Namespace, j.Name, j.UID) == nil
}

// abandon ends one attempt.
func (d *Dispatcher) abandon(ctx context.Context, c cluster.Cluster, row process.Attempt, gone bool) (process.Attempt, error) {
	now := d.now()
	next, err := d.o.Store.UpdateAttempt(ctx, row.ID, func(a *process.Attempt) ([]event.Event, error) {
		if a.State.Terminal() {
			return nil, process.ErrNoChange // it was quicker
		}
		state, reason := process.Unknown, fmt.Sprintf("Cluster %q was removed by force; its Job was deleted.", c.Name)
		switch {
		case !gone:
			reason = fmt.Sprintf("Cluster %q was removed by force and did not confirm that Job %s/%s is gone: it may still run there.", c.Name, a.Namespace, a.JobName)
		case a.StartedAt == nil && a.Runs == 0 && a.State != process.Cancelling:
			state, reason = process.Failed, fmt.Sprintf("Cluster %q was removed by force before a container ran. Submit it again.", c.Name)
		}
		end(a, state, reasonClusterRemoved, reason, now)
		a.UnreachableSince = nil
		return []event.Event{changedTo(reason)}, nil
	})
	if err != nil {
		return row, fmt.Errorf("end attempt %s: %w", row.ID, err)
	}
	d.o.Ledger.Release(row.ID)
	return next, nil
}

// closeLogs stores what is known of the logs of attempts whose cluster was removed, so that their streams end.
func (d *Dispatcher) closeLogs(ctx context.Context, clusterID string) {
	ctx, cancel := context.WithTimeout(ctx, abandonLogsFor)
	defer cancel()
	rows, err := d.o.Store.LogsPending(ctx, clusterID)
	if err != nil {
		d.log.Warn("cannot read whose logs are to be stored, of a cluster that was removed", "cluster", clusterID, "error", err)
		return
	}
	for _, row := range rows {
		err := d.o.Logs.Abandon(ctx, row)
		if err == nil {
			_, err = d.o.Store.UpdateAttempt(ctx, row.ID, logsStored)
		}
		if err != nil {
			d.log.Warn("cannot store the logs of an attempt whose cluster was removed", "attempt", row.ID, "error", err)
		}
	}
}

// closeLeftLogs does what the end of the server before this one kept it from doing after a cluster was removed.
func (d *Dispatcher) closeLeftLogs(ctx context.Context) {
	left, err := d.o.Store.LeftLogs(ctx)
	if err != nil && ctx.Err() == nil {
		d.log.Warn("cannot read which removed clusters have logs to be closed; the next start tries again", "error", err)
	}
	for _, id := range left {
		d.closeLogs(ctx, id)
	}
}

// logsStored notes that the archive holds the logs.
func logsStored(a *process.Attempt) ([]event.Event, error) {
	if a.LogsStored || !a.State.Terminal() {
		return nil, process.ErrNoChange
	}
	a.LogsStored = true
	return nil, nil
}
