package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// lineage is what this process knows of the servers that worked on its database. The database holds it, so a copy of the
// database has the past in common and no more: what a server of the other line wrote has a writer that is unknown here,
// or an epoch that this line had not reached when it began.
type lineage struct {
	writer string    // this process
	begun  time.Time // when it began

	mu     sync.Mutex
	before int64 // the epoch when this process began: no earlier server of this line wrote a later one
	epoch  int64
	known  map[string]bool
}

// beginLineage notes in the database, before anything is written to a cluster, that this process works on it.
func (d *Dispatcher) beginLineage(ctx context.Context) error {
	l := &lineage{writer: uuid.NewString(), begun: d.now(), known: map[string]bool{}}
	before, epoch, writers, err := d.o.Store.BeginEpoch(ctx, l.writer)
	if err != nil {
		return fmt.Errorf("advance the epoch: %w", err)
	}
	l.before, l.epoch = before, epoch
	for _, w := range writers {
		l.known[w] = true
	}
	d.lineage = l
	return nil
}

func (l *lineage) now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// ours says whether a server of this line wrote so.
func (l *lineage) ours(writer string, epoch int64) bool {
	return l.known[writer] && (writer == l.writer || epoch <= l.before)
}

// advance stores a later epoch than the present one and the given one. It is stored before any Lease carries it.
func (d *Dispatcher) advance(ctx context.Context, beyond int64) error {
	epoch, err := d.o.Store.AdvanceEpoch(ctx, beyond)
	if err != nil {
		return fmt.Errorf("advance the epoch: %w", err)
	}
	d.lineage.mu.Lock()
	defer d.lineage.mu.Unlock()
	d.lineage.epoch = max(d.lineage.epoch, epoch)
	return nil
}

// keepAdvancing moves the epoch on in each period, so that a copy of the database, started later, is behind what the
// Leases say.
func (d *Dispatcher) keepAdvancing(ctx context.Context) {
	ticker := d.o.Clock.NewTicker(d.o.LeasePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := d.advance(ctx, 0); err != nil && ctx.Err() == nil {
			d.log.Warn("the epoch of the Leases stands still; trying again", "error", err)
		}
	}
}
