package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/reason"
)

// again makes the attempt that follows one which has just ended, if one does, in the transaction that ends it: whoever
// reads the version sees either the old attempt alive or the new one.
func (t *tx) again(ctx context.Context, ended attemptModel) error {
	if ended.State != string(process.Failed) || !reason.Retried(ended.ReasonCode) {
		return nil
	}
	var raw, latest string
	if err := t.get(ctx, "SELECT spec, attempt_id FROM process_versions WHERE id = ?", []any{ended.VersionID}, &raw, &latest); err != nil {
		return err
	}
	var spec process.Spec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return fmt.Errorf("the stored spec of version %s: %w", ended.VersionID, err)
	}
	if latest != ended.ID || !process.Again(spec, ended.attempt()) {
		return nil
	}
	at := now()
	next := process.Attempt{
		ID: newID(), VersionID: ended.VersionID, ProjectID: ended.ProjectID, Number: ended.Number + 1, State: process.Placing,
		NextTryAt: at, CreatedAt: at, UpdatedAt: at, Revision: 1,
	}
	row := attemptRow(next, ended.ProcessID)
	if _, err := t.insert(ctx, insertAttempts, 1, func(args []any, _ int) []any { return append(args, row.values()...) }); err != nil {
		return err
	}
	if _, err := t.exec(ctx, "UPDATE process_versions SET attempt_id = ?, state = ?, cluster_id = NULL WHERE id = ?", row.ID, row.State, row.VersionID); err != nil {
		return err
	}
	t.emit(ctx, event.Event{
		At: at, Kind: event.Retried, ProjectID: row.ProjectID, ProcessID: row.ProcessID, VersionID: row.VersionID, AttemptID: row.ID, State: row.State,
		Message: fmt.Sprintf("Attempt %d follows: the infrastructure ended attempt %d.", next.Number, ended.Number),
	})
	return nil
}
