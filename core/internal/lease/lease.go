// Package lease finds out which of several servers leads, by a row in their database that the leader renews.
//
// The lease says who should do the leader's work; it does not by itself keep an earlier leader from going on. That is the
// epoch's part: it grows with every term, and the database refuses what a leader of an earlier epoch writes. So a server
// that was paused, cut off or lives by a wrong clock does no harm, however late it notices.
//
// No two clocks are compared. Whether a lease has expired is judged by the database's clock alone; a leader judges its own
// lease by the time that has passed since it asked for it; and a follower that sees the lease unrenewed for long enough
// by its own clock takes over even when the database's clock has gone back.
package lease

import (
	"context"
	"sync"
	"time"
)

// State is the lease as the database has it.
type State struct {
	Epoch   int64
	Holder  string
	Address string // under which other servers reach the holder
	Live    bool   // it has not expired, by the database's clock
	Mark    int64  // changes with each renewal
}

// Session is one server's access to the lease, made by one goroutine. A call that failed may be repeated.
type Session interface {
	// Look reads the lease.
	Look(ctx context.Context) (State, error)
	// Take begins a new term if the lease has expired, its holder's session has ended, or, with silent, it is still as seen.
	Take(ctx context.Context, seen State, silent bool) (epoch int64, taken bool, err error)
	// Renew prolongs the term; held is false when another one has begun.
	Renew(ctx context.Context, epoch int64) (held bool, err error)
	// Resign lets another server begin its term at once.
	Resign(ctx context.Context, epoch int64) error
	// Close ends the session and whatever hangs on it.
	Close() error
}

// Term is one stretch of leading. Safe for concurrent use.
type Term struct {
	Epoch int64

	ttl   time.Duration
	mu    sync.Mutex
	until time.Time
}

// drift is the part of the lease's time that this machine's clock may run slower than the database's.
const drift = 10

func newTerm(epoch int64, ttl time.Duration, asked time.Time) *Term {
	t := &Term{Epoch: epoch, ttl: ttl}
	t.renewed(asked)
	return t
}

// renewed notes that what was asked for at a time was granted: the lease counts from before the question.
func (t *Term) renewed(asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = asked.Add(t.ttl - t.ttl/drift)
}

// Left is how long the lease is sure to last; not positive: it may be over.
func (t *Term) Left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	// The monotonic clock stands still while a machine is suspended, and the other one may be set: the worse of both counts.
	return min(t.until.Sub(now), t.until.Round(0).Sub(now.Round(0)))
}

// Valid says whether the lease is sure to last still.
func (t *Term) Valid() bool { return t.Left() > 0 }
