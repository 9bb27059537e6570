package store

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// News returns up to n events after a sequence number that are of one of the kinds, in their order.
func (db *DB) News(ctx context.Context, after int64, kinds []event.Kind, n int) ([]event.Event, error) {
	return db.Events(ctx, EventFilter{After: after, Kinds: kinds, Limit: n})
}

// Report appends events that go with no change of a row.
func (db *DB) Report(ctx context.Context, events ...event.Event) error {
	return db.write(ctx, "report", func(t *tx) error {
		for _, e := range events {
			t.emit(ctx, e)
		}
		return nil
	})
}
