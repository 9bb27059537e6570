package health

import (
	"sync"
	"time"
)

// outage is the one clock of a cluster's loss. Whatever notices first that the cluster cannot be reached starts it, a
// probe, a failed call or a broken watch, and any answer stops it. It counts what this process saw: it starts anew with
// the process, and a time in which the process stood still is no part of it. Safe for concurrent use.
type outage struct {
	mu    sync.Mutex
	since time.Time // zero: there is none
}

// begin starts the clock unless it runs, and says since when it does and whether it was started here.
func (o *outage) begin(at time.Time) (since time.Time, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first = o.since.IsZero(); first {
		o.since = at
	}
	return o.since, first
}

// end stops the clock and says whether it ran.
func (o *outage) end() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	ran := !o.since.IsZero()
	o.since = time.Time{}
	return ran
}

// start is when it began; zero: there is none.
func (o *outage) start() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// skip takes a time out of it.
func (o *outage) skip(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.since = o.since.Add(d)
	}
}
