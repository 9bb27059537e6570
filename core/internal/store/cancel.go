package store

import (
	"context"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// RequestCancel asks for a version to be stopped, and returns it as it is then. A version that is being placed is
// cancelled at once; one that has a cluster becomes cancelling until that cluster confirms. A version that is ending or
// has ended does not change, so asking twice is safe.
func (db *DB) RequestCancel(ctx context.Context, versionID, userID string, at time.Time) (process.Version, error) {
	var out process.Version
	err := db.write(ctx, "request-cancel", func(t *tx) error {
		var attemptID string
		err := t.NewSelect().Table("process_versions").Column("attempt_id").Where("id = ?", versionID).Scan(ctx, &attemptID)
		if noRows(err) {
			return fmt.Errorf("version %s: %w", versionID, process.ErrNotFound)
		}
		if err != nil {
			return err
		}
		if _, _, err := t.updateAttempt(ctx, attemptID, cancelChange(userID, at)); err != nil {
			return err
		}
		out, err = version(ctx, t, versionID)
		return err
	})
	return out, err
}

func cancelChange(userID string, at time.Time) Change {
	return func(a *process.Attempt) ([]event.Event, error) {
		switch {
		case a.State.Terminal() || a.State == process.Cancelling:
			return nil, process.ErrNoChange
		case a.State == process.Placing:
			a.State, a.EndedAt = process.Cancelled, &at
			a.ReasonCode, a.Reason = "cancelled", "Cancelled before a cluster was chosen"
		default:
			a.State = process.Cancelling
			a.ReasonCode, a.Reason = "cancel-requested", "A stop was asked for; the cluster has not confirmed it yet"
		}
		a.CancelRequestedAt, a.CancelRequestedBy = &at, userID
		a.NextTryAt, a.Tries = at, 0
		return []event.Event{
			{Kind: event.CancelRequested, Actor: userID, Message: "Cancel requested"},
			{Kind: event.StateChanged, Actor: userID, Message: a.Reason},
		}, nil
	}
}
