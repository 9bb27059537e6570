package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Change alters an attempt and returns the events that tell of it. It is pure: it runs inside of a transaction, perhaps
// more than once, and on an attempt that nobody else holds. process.ErrNoChange says that there is nothing to write.
//
// Of the events it gives kind, message, data (a JSON object) and, when it was not the system, the actor; the store fills in
// the rest, and tells of a new state that the change gives no event for.
type Change = func(a *process.Attempt) ([]event.Event, error)

// UpdateAttempt reads an attempt, changes it and writes it, as one step, and returns it as it is then. The table in
// package process says which state may follow. An ended attempt never changes except that its logs may become stored;
// what pins an attempt to its Job never changes once it is set (process.ErrPinned). The time of the end is set here
// when the change did not set it. A change that leaves everything as it was is the same as process.ErrNoChange.
func (db *DB) UpdateAttempt(ctx context.Context, id string, change Change) (process.Attempt, error) {
	var out process.Attempt
	err := db.write(ctx, "update-attempt", func(t *tx) (err error) {
		out, _, err = t.updateAttempt(ctx, id, change)
		return err
	})
	return out, err
}

// Decide does the same and stores the decision that the change carries out, in the same transaction. When the change
// answers process.ErrNoChange the decision is not stored either. cluster.ErrNotFound: the cluster was removed since the
// decision was made.
func (db *DB) Decide(ctx context.Context, d placement.Decision, change Change) (process.Attempt, error) {
	var out process.Attempt
	err := db.write(ctx, "decide", func(t *tx) (err error) {
		var changed bool
		out, changed, err = t.updateAttempt(ctx, d.AttemptID, change)
		if err != nil || !changed {
			return err
		}
		return t.insertDecision(ctx, d)
	})
	return out, err
}

func (t *tx) updateAttempt(ctx context.Context, id string, change Change) (_ process.Attempt, changed bool, err error) {
	row, err := t.attemptForUpdate(ctx, id)
	if err != nil {
		return process.Attempt{}, false, err
	}
	before, after := row.attempt(), row.attempt()
	if row.ExitCode != nil {
		code := *row.ExitCode // the only pointer that both would share
		after.ExitCode = &code
	}
	events, err := change(&after)
	if errors.Is(err, process.ErrNoChange) {
		return before, false, nil
	}
	if err != nil {
		return process.Attempt{}, false, err
	}
	if after.State.Terminal() && after.EndedAt == nil {
		end := now()
		after.EndedAt = &end
	}
	next := attemptRow(after, row.ProcessID)
	if len(events) == 0 && reflect.DeepEqual(row, next) {
		return before, false, nil
	}
	if err := checkChange(row, next); err != nil {
		return process.Attempt{}, false, fmt.Errorf("attempt %s: %w", id, err)
	}
	if row.ClusterID != next.ClusterID {
		if err := t.holdCluster(ctx, next.ClusterID); err != nil {
			return process.Attempt{}, false, err
		}
	}
	next.UpdatedAt, next.Revision = micros(now()), row.Revision+1
	if err := t.storeAttempt(ctx, row, next); err != nil {
		return process.Attempt{}, false, err
	}
	t.news = true
	for _, e := range told(row, next, events) {
		t.emit(ctx, e)
	}
	if !before.State.Terminal() && after.State.Terminal() {
		if err := t.again(ctx, next); err != nil {
			return process.Attempt{}, false, fmt.Errorf("the attempt after %s: %w", id, err)
		}
	}
	return next.attempt(), true, nil
}

// storeAttempt writes the row, and what its version shows of it when it is the latest attempt.
func (t *tx) storeAttempt(ctx context.Context, before, after attemptModel) error {
	values := after.values()
	if _, err := t.exec(ctx, updateAttempt, append(values[attemptFixed:], after.ID)...); err != nil {
		return err
	}
	if before.State == after.State && before.ClusterID == after.ClusterID {
		return nil
	}
	_, err := t.exec(ctx, "UPDATE process_versions SET state = ?, cluster_id = ? WHERE id = ? AND attempt_id = ?",
		after.State, orNull(after.ClusterID), after.VersionID, after.ID)
	return err
}

// checkChange says whether an attempt may become what a change made of it.
func checkChange(before, after attemptModel) error {
	from, to := process.State(before.State), process.State(after.State)
	if from.Terminal() {
		before.LogsStored = after.LogsStored
		if !reflect.DeepEqual(before, after) {
			return fmt.Errorf("%w: it is %s, which is final", process.ErrTransition, from)
		}
		return nil
	}
	if err := process.CheckTransition(from, to); err != nil {
		return err
	}
	if after.EndedAt != nil && !to.Terminal() {
		return fmt.Errorf("%w: %s is not an end and has no end time", process.ErrTransition, to)
	}
	if after.ClusterID == "" && to != process.Placing && !to.Terminal() {
		return fmt.Errorf("%w: %s needs a cluster", process.ErrTransition, to)
	}
	for _, f := range []struct{ name, before, after string }{
		{"cluster", before.ClusterID, after.ClusterID},
		{"cluster identity", before.ClusterIdentity, after.ClusterIdentity},
		{"namespace", before.Namespace, after.Namespace},
		{"Job name", before.JobName, after.JobName},
		{"Job UID", before.JobUID, after.JobUID},
	} {
		if f.before != "" && f.before != f.after {
			return fmt.Errorf("%w: its %s is %q, not %q", process.ErrPinned, f.name, f.before, f.after)
		}
	}
	if before.ID != after.ID || before.VersionID != after.VersionID || before.ProjectID != after.ProjectID ||
		before.Number != after.Number || before.CreatedAt != after.CreatedAt {
		return fmt.Errorf("%w: its ids, number and time of creation", process.ErrPinned)
	}
	return nil
}
