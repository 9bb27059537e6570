package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

const (
	placingPage   = 256
	placingRefill = 64
	allPlacing    = 1 << 20 // more than ever wait at once

	retryFirst = 250 * time.Millisecond // after a selector's error
	retryMost  = 30 * time.Second
	retryRead  = time.Second // after an error of our own database

	// storing is how many decisions are stored at once: the database commits together what comes together.
	storing = 64
)

// reasonErrorLimit is the reason code of an attempt whose selectors failed for too long.
const reasonErrorLimit = "placing-error-limit"

// placing decides where attempts go. Those that are due come from the database, those that wait from memory, where a
// start puts them.
type placing struct {
	d        *Dispatcher
	requests requests
	waiting  *waiting
	kick     chan struct{}
	due      chan process.Attempt
	stores   chan struct{}           // slots
	warnings flowcontrol.RateLimiter // thousands of attempts may have one and the same trouble

	mu     sync.Mutex
	asking map[string]bool // under decision
	// settled have been decided since the last read of the database began: what that read says of them is old.
	settled map[string]bool
	more    bool      // the last read left some out
	nextTry time.Time // the earliest retry known of; zero: none
}

func newPlacing(d *Dispatcher) *placing {
	return &placing{
		d: d, requests: requests{d: d}, waiting: newWaiting(), kick: make(chan struct{}, 1),
		warnings: flowcontrol.NewTokenBucketRateLimiter(0.2, 5),
		due:      make(chan process.Attempt, placingPage), stores: make(chan struct{}, storing),
		asking: map[string]bool{}, settled: map[string]bool{},
	}
}

// wake says that there may be attempts to place.
func (p *placing) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// changed says that clusters or what is free on them changed.
func (p *placing) changed() { p.waiting.changed() }

// forget says that the attempt does not wait any more.
func (p *placing) forget(id string) { p.waiting.remove(id) }

func (p *placing) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range p.d.o.Placings {
		wg.Go(func() {
			for a := range p.due {
				if ctx.Err() == nil {
					p.ask(ctx, a, func(store func()) { wg.Go(store) })
				}
			}
		})
	}
	wg.Go(func() { p.reask(ctx) })
	p.recall(ctx)
	for {
		wait := p.d.o.Scan
		if err := p.fill(ctx); err != nil {
			if ctx.Err() == nil {
				p.d.log.Warn("cannot read what is to be placed; trying again", "error", err)
			}
			wait = retryRead
		}
		timer := p.d.o.Clock.NewTimer(p.until(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			close(p.due)
			wg.Wait()
			return
		case <-p.kick:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// recall finds those that waited before the start, and lets them be asked: much may have changed since.
func (p *placing) recall(ctx context.Context) {
	now := p.d.now()
	list, err := p.d.o.Store.PlacingDue(ctx, now.AddDate(100, 0, 0), allPlacing)
	if err != nil {
		// They come up when their own time comes.
		p.d.log.Warn("cannot read the attempts that wait for a cluster", "error", err)
		return
	}
	asked := p.waiting.now()
	for _, a := range list {
		if a.NextTryAt.After(now) && a.ErrorSince == nil {
			p.waiting.add(a.ID, asked)
		}
	}
	p.waiting.changed()
}

// until bounds a pause by the next retry.
func (p *placing) until(wait time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nextTry.IsZero() {
		return wait
	}
	return max(0, min(wait, p.nextTry.Sub(p.d.now())))
}

func (p *placing) retryAt(t time.Time) {
	p.mu.Lock()
	earlier := p.nextTry.IsZero() || t.Before(p.nextTry)
	if earlier {
		p.nextTry = t
	}
	p.mu.Unlock()
	if earlier {
		p.wake()
	}
}

// fill hands out what is due, in the order of submission.
func (p *placing) fill(ctx context.Context) error {
	now := p.d.now()
	p.mu.Lock()
	clear(p.settled)
	p.more = false
	if !p.nextTry.After(now) {
		p.nextTry = time.Time{}
	}
	p.mu.Unlock()

	list, err := p.d.o.Store.PlacingDue(ctx, now, placingPage)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = len(list) == placingPage
	for _, a := range list {
		if p.asking[a.ID] || p.settled[a.ID] {
			continue
		}
		select {
		case p.due <- a:
			p.asking[a.ID] = true
		default:
			p.more = true
			return nil
		}
	}
	return nil
}

// done says that the attempt's decision is stored, or could not be made.
func (p *placing) done(id string) {
	p.mu.Lock()
	delete(p.asking, id)
	p.settled[id] = true
	refill := p.more && len(p.due) < placingRefill
	if refill {
		p.more = false
	}
	p.mu.Unlock()
	if refill {
		p.wake()
	}
}

// reask decides anew for those that wait, one at a time and not faster than the limit.
func (p *placing) reask(ctx context.Context) {
	pause := time.Second / time.Duration(p.d.o.ReasksPerSecond)
	for {
		id := p.waiting.next()
		if id == "" {
			select {
			case <-ctx.Done():
				return
			case <-p.waiting.kick:
			}
			continue
		}
		p.askWaiting(ctx, id)
		timer := p.d.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

func (p *placing) askWaiting(ctx context.Context, id string) {
	p.mu.Lock()
	busy := p.asking[id]
	p.asking[id] = true
	p.mu.Unlock()
	if busy {
		return
	}
	a, err := p.d.o.Store.Attempt(ctx, id)
	switch {
	case errors.Is(err, process.ErrNotFound), err == nil && a.State != process.Placing:
		p.waiting.remove(id)
		p.done(id)
	case err != nil:
		p.done(id) // its own time comes
	default:
		p.ask(ctx, a, func(store func()) { store() })
	}
}

// ask makes one decision and stores it by way of then, so that the next question need not wait for the database.
func (p *placing) ask(ctx context.Context, a process.Attempt, then func(store func())) {
	asked := p.waiting.now()
	v, dec, err := p.decide(ctx, a)
	if err != nil {
		p.conclude(ctx, a.ID, err)
		return
	}
	select {
	case p.stores <- struct{}{}:
	case <-ctx.Done():
		p.d.o.Ledger.Release(a.ID)
		p.done(a.ID)
		return
	}
	then(func() {
		defer func() { <-p.stores }()
		p.conclude(ctx, a.ID, p.store(ctx, a, v, dec, asked))
	})
}

func (p *placing) conclude(ctx context.Context, id string, err error) {
	p.done(id)
	if err != nil && ctx.Err() == nil {
		if p.warnings.TryAccept() {
			p.d.log.Warn("cannot place; trying again", "attempt", id, "error", err)
		}
		p.retryAt(p.d.now().Add(retryRead))
	}
}

func (p *placing) decide(ctx context.Context, a process.Attempt) (v process.Version, dec placement.Decision, err error) {
	if v, err = p.d.o.Store.Version(ctx, a.VersionID); err != nil {
		return v, dec, fmt.Errorf("read version %s: %w", a.VersionID, err)
	}
	r, err := p.requests.of(ctx, v, a)
	if err != nil {
		return v, dec, err
	}
	if dec, err = p.d.o.Placer.Decide(ctx, a.ID, r); err == nil && ctx.Err() != nil {
		// What selectors said while everything stops is not their answer.
		p.d.o.Ledger.Release(a.ID)
		err = ctx.Err()
	}
	return v, dec, err
}
