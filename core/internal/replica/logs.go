package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Follower reads the log of an attempt. *logs.Reader fulfils it.
type Follower interface {
	Follow(ctx context.Context, attemptID string, o logs.FollowOptions) (iter.Seq2[logs.Chunk, error], error)
}

// Attempts tells where an attempt stands.
type Attempts interface {
	Attempt(ctx context.Context, id string) (process.Attempt, error)
}

// LogsOptions configure Logs. All are required.
type LogsOptions struct {
	Leaders Leaders
	// Local reads what this server follows while it leads; nil: it does not.
	Local func() Follower
	// Archive reads what is stored, as every server can.
	Archive  Follower
	Attempts Attempts
	// Transport leads to the other servers.
	Transport http.RoundTripper
	// Self is this server's id.
	Self string
}

// Logs reads the log of an attempt wherever it is: from what this server follows, from the archive, or from the leader.
// When the leader changes it goes on with the next one at the position where the last one stopped, so that its reader sees
// neither a gap nor anything twice. Safe for concurrent use.
type Logs struct{ o LogsOptions }

// NewLogs returns Logs.
func NewLogs(o LogsOptions) *Logs { return &Logs{o} }

const (
	// leaderWait is how long the beginning of a log waits for a leader; takeOver how long one that has begun does.
	leaderWait = 10 * time.Second
	takeOver   = 2 * time.Minute
	// again is the pause between two tries at the same leader.
	again = 300 * time.Millisecond
)

type callerKey struct{}

// WithCaller gives the context the headers of the request that it serves, which its credentials are among.
func WithCaller(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, callerKey{}, h)
}

func caller(ctx context.Context) http.Header {
	h, _ := ctx.Value(callerKey{}).(http.Header)
	return h
}

// Follow implements Follower. The context comes from WithCaller.
func (l *Logs) Follow(ctx context.Context, attemptID string, o logs.FollowOptions) (iter.Seq2[logs.Chunk, error], error) {
	p := &passage{l: l, id: attemptID, o: o}
	var seq iter.Seq2[logs.Chunk, error]
	for end := time.Now().Add(leaderWait); seq == nil; {
		var changed <-chan struct{}
		var err error
		seq, changed, err = p.open(ctx)
		if err == nil {
			break
		}
		if !moved(err) || time.Now().After(end) || caller(ctx).Get(HeaderForwarded) != "" {
			return nil, err
		}
		if err := pause(ctx, changed); err != nil {
			return nil, err
		}
	}
	return func(yield func(logs.Chunk, error) bool) { p.run(ctx, seq, yield) }, nil
}

// passage is one reader's way through one log.
type passage struct {
	l  *Logs
	id string
	o  logs.FollowOptions // After is behind everything given
	// part is the container instance that the reader was last told of.
	part logs.Cursor
}

// open begins, or goes on, where the log is now. The channel closes when that may have changed.
func (p *passage) open(ctx context.Context) (iter.Seq2[logs.Chunk, error], <-chan struct{}, error) {
	v, changed := p.l.o.Leaders.View()
	if local := p.l.o.Local(); local != nil {
		seq, err := local.Follow(ctx, p.id, p.o)
		return seq, changed, err
	}
	a, err := p.l.o.Attempts.Attempt(ctx, p.id)
	switch {
	case err != nil:
		return nil, changed, err
	case a.LogsStored || a.State.Terminal() && a.JobUID == "":
		seq, err := p.l.o.Archive.Follow(ctx, p.id, p.o)
		return seq, changed, err
	case v.Self || v.Address == "":
		return nil, changed, ErrNoLeader // or its work is only beginning here
	case caller(ctx).Get(HeaderForwarded) != "":
		return nil, changed, fmt.Errorf("%w: this server has just stopped leading", ErrNoLeader)
	}
	seq, err := p.l.remote(ctx, v, changed, a, p.o)
	return seq, changed, err
}

// moved says whether an error means that the log is to be looked for elsewhere.
func moved(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, errBroken) || errors.Is(err, logs.ErrClosed) || problem.Is(err, problem.NoLeader)
}

// pause waits a moment, or until changed.
func pause(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-t.C:
	}
	return nil
}

func (p *passage) run(ctx context.Context, seq iter.Seq2[logs.Chunk, error], yield func(logs.Chunk, error) bool) {
	for {
		err, done := p.pass(seq, yield)
		if done {
			return
		}
		// One that was passed on ends here: the server that did so finds the next leader.
		if !moved(err) || caller(ctx).Get(HeaderForwarded) != "" {
			yield(logs.Chunk{Cursor: p.o.After}, err)
			return
		}
		if seq, err, done = p.reopen(ctx, yield); done {
			return
		}
		if err != nil {
			yield(logs.Chunk{Cursor: p.o.After}, err)
			return
		}
	}
}

// reopen finds where the log goes on, and tells the reader meanwhile that it is not forgotten.
func (p *passage) reopen(ctx context.Context, yield func(logs.Chunk, error) bool) (seq iter.Seq2[logs.Chunk, error], err error, done bool) {
	spoke := time.Now()
	for end := time.Now().Add(takeOver); ; {
		var changed <-chan struct{}
		seq, changed, err = p.open(ctx)
		if err == nil || !moved(err) || time.Now().After(end) {
			return seq, err, false
		}
		if err := pause(ctx, changed); err != nil {
			return nil, err, false
		}
		if p.o.Heartbeat > 0 && time.Since(spoke) > p.o.Heartbeat {
			spoke = time.Now()
			if !yield(logs.Chunk{Kind: logs.ChunkHeartbeat, Cursor: p.o.After}, nil) {
				return nil, nil, true
			}
		}
	}
}

// pass gives one stretch of the log; done: nothing is to follow.
func (p *passage) pass(seq iter.Seq2[logs.Chunk, error], yield func(logs.Chunk, error) bool) (broken error, done bool) {
	for c, err := range seq {
		if err != nil {
			return err, false
		}
		switch c.Kind {
		case logs.ChunkPod:
			if part := instance(c.Cursor); part != p.part {
				p.part = part
			} else {
				continue // where it goes on has been announced before
			}
		case logs.ChunkData:
			p.o.After, p.part = c.Cursor, instance(c.Cursor)
		}
		if !yield(c, nil) || c.Kind == logs.ChunkEnd {
			return nil, true
		}
		if c.Kind == logs.ChunkPod {
			p.o.After = c.Cursor
		}
	}
	return fmt.Errorf("%w: without an end", errBroken), false
}

// instance is the container instance of a position.
func instance(c logs.Cursor) logs.Cursor {
	c.Offset, c.Origin, c.End = 0, 0, false
	return c
}

// remote reads the log from the leader until it ends, breaks, or another one leads.
func (l *Logs) remote(ctx context.Context, v lease.View, changed <-chan struct{}, a process.Attempt, o logs.FollowOptions) (iter.Seq2[logs.Chunk, error], error) {
	ctx, cancel := context.WithCancelCause(ctx)
	body, err := l.request(ctx, v, a, o)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return func(yield func(logs.Chunk, error) bool) {
		over := make(chan struct{})
		defer func() { cancel(nil); body.Close(); <-over }()
		alive := make(chan struct{}, 1)
		go func() {
			defer close(over)
			watch(ctx, cancel, changed, alive)
		}()
		decode(body, alive, yield)
	}, nil
}

// silence is the longest time without a byte from a leader that is alive: it sends heartbeats.
const silence = 30 * time.Second

// watch ends the reading of a leader that is no more, or silent.
func watch(ctx context.Context, cancel context.CancelCauseFunc, changed, alive <-chan struct{}) {
	t := time.NewTimer(silence)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			cancel(errBroken)
			return
		case <-t.C:
			cancel(errBroken)
			return
		case <-alive:
			t.Reset(silence)
		}
	}
}
