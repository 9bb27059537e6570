package store

import (
	"context"
	"encoding/json"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

type eventModel struct {
	bun.BaseModel `bun:"table:events,alias:e"`

	Seq       int64 `bun:",pk"`
	At        int64
	Kind      string
	ProjectID string `bun:",nullzero"`
	ProcessID string `bun:",nullzero"`
	VersionID string `bun:",nullzero"`
	AttemptID string `bun:",nullzero"`
	ClusterID string `bun:",nullzero"`
	Actor     string
	State     string
	Message   string
	Data      string `bun:",nullzero"`
}

func (m eventModel) event() event.Event {
	e := event.Event{
		Seq: m.Seq, At: timeOf(m.At), Kind: event.Kind(m.Kind), ProjectID: m.ProjectID, ProcessID: m.ProcessID,
		VersionID: m.VersionID, AttemptID: m.AttemptID, ClusterID: m.ClusterID, Actor: m.Actor, State: m.State,
		Message: m.Message,
	}
	if m.Data != "" {
		e.Data = json.RawMessage(m.Data)
	}
	return e
}

// EventFilter selects events. The zero value selects the oldest ones of everything.
type EventFilter struct {
	After     int64 // only events with a greater sequence number
	ProjectID string
	VersionID string
	Kinds     []event.Kind // nil: all
	Limit     int          // 0: 100; at most 1000
}

// Events returns events in the order of their sequence numbers. Whoever has seen number n never later finds a new event
// with a number of n or less.
func (db *DB) Events(ctx context.Context, f EventFilter) ([]event.Event, error) {
	var rows []eventModel
	q := db.ro.NewSelect().Model(&rows).Where("e.seq > ?", f.After).Order("e.seq").Limit(int64(limit(f.Limit)))
	if f.ProjectID != "" {
		q.Where("e.project_id = ?", f.ProjectID)
	}
	if f.VersionID != "" {
		q.Where("e.version_id = ?", f.VersionID)
	}
	if f.Kinds != nil {
		q.Where("e.kind IN (?)", bun.List(f.Kinds))
	}
	if err := q.Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]event.Event, len(rows))
	for i, m := range rows {
		all[i] = m.event()
	}
	return all, nil
}

// News returns up to n events of the kinds after a sequence number, in their order.
func (db *DB) News(ctx context.Context, after int64, kinds []event.Kind, n int) ([]event.Event, error) {
	return db.Events(ctx, EventFilter{After: after, Kinds: kinds, Limit: n})
}

// Report appends events that belong to no change of a row. Their numbers are given here, and the time and the actor
// when they are open.
func (db *DB) Report(ctx context.Context, events ...event.Event) error {
	if len(events) == 0 {
		return nil
	}
	return db.write(ctx, "report", func(t *tx) error {
		for _, e := range events {
			t.emit(ctx, e)
		}
		return nil
	})
}

// LastSeq returns the sequence number of the newest event; 0: there is none.
func (db *DB) LastSeq(ctx context.Context) (int64, error) {
	var n int64
	err := db.ro.NewRaw("SELECT seq FROM event_counter WHERE id = 1").Scan(ctx, &n)
	return n, err
}

const nextSeq = "UPDATE event_counter SET seq = seq + ? WHERE id = 1 RETURNING seq"

var insertEvents = newInsertion("events", []string{
	"seq", "at", "kind", "project_id", "process_id", "version_id", "attempt_id", "cluster_id", "actor", "state", "message", "data",
}, "")

// appendEvents numbers the events of the transaction and writes them. The row of the counter stays locked until the
// commit: no other transaction gets a later number and commits first. So this comes last.
func (t *tx) appendEvents(ctx context.Context) error {
	if len(t.events) == 0 {
		return nil
	}
	var last int64
	if err := t.get(ctx, nextSeq, []any{int64(len(t.events))}, &last); err != nil {
		return err
	}
	first := last - int64(len(t.events)) + 1
	_, err := t.insert(ctx, insertEvents, len(t.events), func(args []any, i int) []any {
		e := t.events[i]
		return append(args, first+int64(i), micros(e.At), string(e.Kind), orNull(e.ProjectID), orNull(e.ProcessID), orNull(e.VersionID),
			orNull(e.AttemptID), orNull(e.ClusterID), e.Actor, e.State, text(e.Message), orNull(text(string(e.Data))))
	})
	return err
}

// emit adds an event to the write. What it leaves open is filled in: the time, and the caller as the actor, else
// "system".
func (t *tx) emit(ctx context.Context, e event.Event) {
	if e.At.IsZero() {
		e.At = now()
	}
	if e.Actor == "" {
		e.Actor = "system"
		if p, ok := auth.From(ctx); ok && p.UserID != "" {
			e.Actor = p.UserID
		}
	}
	t.events = append(t.events, e)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// limit bounds the length of a page.
func limit(n int) int {
	switch {
	case n <= 0:
		return 100
	case n > 1000:
		return 1000
	}
	return n
}
