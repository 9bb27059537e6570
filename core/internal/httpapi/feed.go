package httpapi

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

const (
	feedPage   = 1000 // events read at once
	feedKeep   = 1024 // events kept at least, for readers that are a little behind
	feedRescan = 5 * time.Second
)

// feed reads each event once, however many streams are open, and keeps the latest encoded. A stream that is further
// behind, or has just come, reads the store until it has caught up.
type feed struct {
	source EventSource
	seen   func(event.Event)
	names  *names
	log    hclog.Logger

	mu      sync.Mutex
	recent  []encoded     // in order, without gaps
	from    int64         // events above it are in recent, up to last
	last    int64         // highest number read; 0: nothing was read yet
	changed chan struct{} // closed at the next change
	started bool
}

// encoded is an event with its JSON text.
type encoded struct {
	event.Event
	data []byte
}

func newFeed(source EventSource, names *names, seen func(event.Event), log hclog.Logger) *feed {
	if seen == nil {
		seen = func(event.Event) {}
	}
	return &feed{source: source, seen: seen, names: names, log: log, changed: make(chan struct{})}
}

// run follows the store until ctx ends.
func (f *feed) run(ctx context.Context) {
	woken, cancel := f.source.Hub().Subscribe()
	defer cancel()
	rescan := time.NewTicker(feedRescan) // another replica's commits do not wake this one's hub
	defer rescan.Stop()
	for {
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("cannot read events; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-rescan.C:
		}
	}
}

func (f *feed) read(ctx context.Context) error {
	if !f.started {
		last, err := f.source.LastSeq(ctx)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.from, f.last, f.started = last, last, true
		f.wake()
		f.mu.Unlock()
	}
	for {
		page, err := f.source.Events(ctx, store.EventFilter{After: f.last, Limit: feedPage})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		more := make([]encoded, len(page))
		for i, e := range page {
			f.names.heard(e)
			more[i] = encode(ctx, f.names, e)
		}
		f.mu.Lock()
		f.recent = append(f.recent, more...)
		if over := len(f.recent) - feedKeep; over > feedKeep { // not each time: it copies what is kept
			f.from = f.recent[over-1].Seq
			// Readers hold slices of the old array: it is not written again, only left.
			f.recent = append([]encoded(nil), f.recent[over:]...)
		}
		f.last = page[len(page)-1].Seq
		f.wake()
		f.mu.Unlock()
		for _, e := range page {
			f.seen(e)
		}
		if len(page) < feedPage {
			return nil
		}
	}
}

func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// since returns the events above a number and the channel that closes when there are more. ok is false when they are no
// longer kept, or nothing was read yet.
func (f *feed) since(after int64) (events []encoded, last int64, changed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.started || after < f.from {
		return nil, f.last, f.changed, false
	}
	i := len(f.recent)
	for i > 0 && f.recent[i-1].Seq > after {
		i--
	}
	return f.recent[i:len(f.recent):len(f.recent)], f.last, f.changed, true
}

func encode(ctx context.Context, n *names, e event.Event) encoded {
	data, err := json.Marshal(toEvent(ctx, n, e))
	if err != nil { // only Data can be at fault, and it was JSON when it was stored
		e.Data = nil
		data, _ = json.Marshal(toEvent(ctx, n, e))
	}
	return encoded{Event: e, data: data}
}
