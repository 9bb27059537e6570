package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options configure an Elector. Session, TTL and Lead are required.
type Options struct {
	Session Session
	// TTL is how long a lease lasts that is not renewed.
	TTL time.Duration
	// Poll is the time between two looks of a follower; default a sixteenth of TTL.
	Poll time.Duration
	// Lead does the leader's work until ctx ends, which is when the term has ended or is about to; it returns when all of
	// it has ended. An early return gives the term up. It calls begun, once, when requests for the leader can be served.
	Lead   func(ctx context.Context, t *Term, begun func()) error
	Logger hclog.Logger
}

// View is what a server knows of who leads. The zero value: nobody, as far as it knows.
type View struct {
	Self    bool
	Epoch   int64
	Holder  string
	Address string
}

// Elector takes the lease when it is free, renews it, and has the leader's work done meanwhile. Its methods are safe for
// concurrent use.
type Elector struct {
	o   Options
	log hclog.Logger

	mu      sync.Mutex
	view    View
	changed chan struct{}
	settled chan struct{} // closed once it was found out who leads
	once    sync.Once
}

// New returns an Elector that does nothing until Run.
func New(o Options) *Elector {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Poll <= 0 {
		o.Poll = o.TTL / 16
	}
	return &Elector{o: o, log: o.Logger, changed: make(chan struct{}), settled: make(chan struct{})}
}

// View returns who leads, and a channel that closes when that changes.
func (e *Elector) View() (View, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view, e.changed
}

// Settled is closed once it is known who leads.
func (e *Elector) Settled() <-chan struct{} { return e.settled }

func (e *Elector) show(v View) {
	e.mu.Lock()
	if v != e.view {
		e.view = v
		close(e.changed)
		e.changed = make(chan struct{})
	}
	e.mu.Unlock()
	if v.Epoch > 0 {
		e.once.Do(func() { close(e.settled) })
	}
}

// Run works until ctx ends; then it ends the work, gives the lease back and returns. Its error is always nil.
func (e *Elector) Run(ctx context.Context) error {
	defer func() {
		if err := e.o.Session.Close(); err != nil {
			e.log.Debug("the session of the lease did not end in order", "error", err)
		}
	}()
	for {
		t := e.campaign(ctx)
		if t == nil {
			return nil
		}
		e.serve(ctx, t)
	}
}

// campaign follows until the lease is taken; nil: ctx ended.
func (e *Elector) campaign(ctx context.Context) *Term {
	tick := time.NewTicker(e.o.Poll)
	defer tick.Stop()
	var seen State
	since := time.Now() // when the lease was first seen as it is
	failing := false
	for {
		if ctx.Err() != nil {
			return nil
		}
		t, now, err := e.try(ctx, seen, time.Since(since) > 2*e.o.TTL)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			e.log.Warn("cannot read who leads; trying again", "error", err)
		case t != nil:
			return t
		}
		failing = err != nil
		if err == nil {
			if now.Epoch != seen.Epoch || now.Mark != seen.Mark {
				seen, since = now, time.Now()
			}
			v := View{}
			if now.Live {
				v = View{Epoch: now.Epoch, Holder: now.Holder, Address: now.Address}
			}
			e.show(v)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// try takes the lease if it can, and otherwise reads it.
func (e *Elector) try(ctx context.Context, seen State, silent bool) (*Term, State, error) {
	// Long enough for the commit of an earlier leader that hangs in a transaction.
	ctx, cancel := context.WithTimeout(ctx, e.o.TTL)
	defer cancel()
	now, err := e.o.Session.Look(ctx)
	if err != nil {
		return nil, State{}, err
	}
	asked := time.Now()
	epoch, taken, err := e.o.Session.Take(ctx, now, silent && now.Epoch == seen.Epoch && now.Mark == seen.Mark)
	if err != nil || !taken {
		return nil, now, err
	}
	return newTerm(epoch, e.o.TTL, asked), now, nil
}

// serve has the work done as long as the term lasts.
func (e *Elector) serve(ctx context.Context, t *Term) {
	work, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	e.log.Info("this server leads now", "epoch", t.Epoch)
	begun := make(chan struct{})
	go func() { ended <- e.o.Lead(work, t, func() { close(begun) }) }()

	why := e.renew(ctx, t, begun, ended)
	e.show(View{})
	end()
	if why != nil && ctx.Err() == nil {
		e.log.Warn("this server no longer leads", "epoch", t.Epoch, "cause", why)
	}
	if !errors.Is(why, errWorkEnded) {
		e.drain(ctx, ended)
	}
	if errors.Is(why, errLost) {
		return
	}
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.o.TTL/4)
	defer cancel()
	if err := e.o.Session.Resign(giving, t.Epoch); err != nil {
		e.log.Debug("the lease could not be given back; it expires", "error", err)
	}
}

// drain waits for the end of the work, which may take a while, and goes on looking who leads.
func (e *Elector) drain(ctx context.Context, ended <-chan error) {
	tick := time.NewTicker(e.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ended: //nolint:errcheck // the work was told to end: how it did changes nothing
			return
		case <-tick.C:
		}
		if ctx.Err() != nil {
			continue
		}
		look, cancel := context.WithTimeout(ctx, e.o.TTL/4)
		if now, err := e.o.Session.Look(look); err == nil && now.Live {
			e.show(View{Epoch: now.Epoch, Holder: now.Holder, Address: now.Address})
		}
		cancel()
	}
}

var (
	errLost      = errors.New("another server has begun a term")
	errExpired   = errors.New("the lease could not be renewed in time")
	errWorkEnded = errors.New("the work ended by itself")
)

// renew keeps the lease and says why it does so no longer.
func (e *Elector) renew(ctx context.Context, t *Term, begun <-chan struct{}, ended <-chan error) error {
	pause := time.NewTimer(e.o.TTL / 5)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-begun:
			begun = nil
			e.show(View{Self: true, Epoch: t.Epoch})
			continue
		case err := <-ended:
			return errors.Join(errWorkEnded, err)
		case <-pause.C:
		}
		if !t.Valid() {
			return errExpired
		}
		asked := time.Now()
		try, cancel := context.WithTimeout(ctx, min(e.o.TTL/4, t.Left()))
		held, err := e.o.Session.Renew(try, t.Epoch)
		cancel()
		next := e.o.TTL / 5
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			e.log.Warn("cannot renew the lease; trying again", "left", t.Left().Round(time.Millisecond), "error", err)
			next = e.o.TTL / 20
		case !held:
			return errLost
		default:
			t.renewed(asked)
		}
		if !t.Valid() {
			return errExpired // the answer came late, as after a pause of this process
		}
		pause.Reset(min(next, t.Left()))
	}
}
