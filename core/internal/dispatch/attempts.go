package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// begin takes the attempt into these hands alone; a is nil when it is in others.
func (w *worker) begin(id string) (a *attempt, row process.Attempt, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a = w.attempts[id]
	if a == nil {
		return nil, process.Attempt{}, false
	}
	if a.busy {
		a.again = true
		return nil, process.Attempt{}, true
	}
	a.busy = true
	return a, a.row, true
}

func (w *worker) finish(a *attempt) {
	w.mu.Lock()
	a.busy = false
	again := a.again
	a.again = false
	row := a.row
	w.mu.Unlock()
	if again {
		w.enqueue(row)
	}
}

// enqueue asks for a look at the attempt.
func (w *worker) enqueue(row process.Attempt) {
	if row.State == process.Creating && row.JobUID == "" {
		w.creates.Add(row.ID)
		return
	}
	w.looks.Add(row.ID)
}

// wake asks for a look at an attempt by id, if the worker has it.
func (w *worker) wake(id string) bool {
	w.mu.Lock()
	a := w.attempts[id]
	var row process.Attempt
	if a != nil {
		row = a.row
	}
	w.mu.Unlock()
	if a == nil {
		return false
	}
	w.enqueue(row)
	return true
}

func (w *worker) wakeAll() {
	w.mu.Lock()
	rows := make([]process.Attempt, 0, len(w.attempts))
	for _, a := range w.attempts {
		rows = append(rows, a.row)
	}
	w.mu.Unlock()
	for _, row := range rows {
		w.enqueue(row)
	}
}

// take adds an attempt that was placed by this process.
func (w *worker) take(row process.Attempt, v *process.Version) {
	w.mu.Lock()
	if w.attempts[row.ID] == nil && !row.State.Terminal() {
		w.attempts[row.ID] = &attempt{row: row, version: v, sent: sentNever}
	}
	w.mu.Unlock()
	w.d.fleet.expected(row.ID)
	w.wake(row.ID)
}

// learn takes over a row that was read from the database. One that has ended is not taken up anew.
func (w *worker) learn(row process.Attempt) {
	w.mu.Lock()
	known := w.attempts[row.ID] != nil
	w.mu.Unlock()
	if known || !row.State.Terminal() {
		w.admit(row)
	}
}

// admit takes over a row that was read from the database.
func (w *worker) admit(row process.Attempt) {
	sent := sentMaybe
	if w.d.fleet.expected(row.ID) {
		sent = sentNever
	}
	w.mu.Lock()
	a := w.attempts[row.ID]
	switch {
	case a == nil:
		w.attempts[row.ID] = &attempt{row: row, sent: sent}
	case row.Revision > a.row.Revision:
		ended := row.State.Terminal() && !a.row.State.Terminal()
		a.row = row
		if ended {
			defer w.ended(row) // by somebody else
		}
	}
	w.mu.Unlock()
	w.wake(row.ID)
}

// keep notes the row that a write returned.
func (w *worker) keep(a *attempt, row process.Attempt) process.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if row.Revision > a.row.Revision {
		a.row = row
	}
	return a.row
}

// ended gives back what a live attempt held.
func (w *worker) ended(row process.Attempt) {
	w.d.o.Ledger.Release(row.ID)
	w.d.place.changed()
}

func (w *worker) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, id)
}

// update changes the attempt, unless the row in memory says that there is nothing to change. It returns the row as it
// is then.
func (w *worker) update(ctx context.Context, a *attempt, row process.Attempt, change Change) (process.Attempt, error) {
	try := row
	if _, err := change(&try); errors.Is(err, process.ErrNoChange) {
		return row, nil
	}
	next, err := w.d.o.Store.UpdateAttempt(ctx, row.ID, change)
	if err != nil {
		return row, fmt.Errorf("store the change of attempt %s: %w", row.ID, err)
	}
	next = w.keep(a, next)
	if next.State.Terminal() && !row.State.Terminal() {
		a.version = nil
		w.ended(next)
		w.enqueue(next) // what is left to do comes after the end
	}
	return next, nil
}

// say stores a reason when it is a new one.
func (w *worker) say(ctx context.Context, a *attempt, row process.Attempt, code, reason string) (process.Attempt, error) {
	return w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != row.State || a.ReasonCode == code && a.Reason == reason {
			return nil, process.ErrNoChange
		}
		a.ReasonCode, a.Reason = code, reason
		return []event.Event{reasonNow(reason)}, nil
	})
}
