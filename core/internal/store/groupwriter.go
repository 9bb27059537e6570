package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

// groupWriter is the only writer of a SQLite database. One goroutine takes the writes that wait, runs each in a
// savepoint of one transaction, commits, and answers them all: the price of a synchronous commit is shared. A write that
// fails is rolled back alone.
type groupWriter struct {
	db    *DB
	queue chan *pending
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
}

type pending struct {
	run    func(*tx) error
	err    error
	panic  any
	answer chan struct{} // closed when err and panic are final
}

// A group ends when nothing waits, and in any case at these bounds, so that the first of it does not wait for long.
const (
	groupSize = 512
	groupTime = 20 * time.Millisecond
)

func newGroupWriter(db *DB) *groupWriter {
	w := &groupWriter{db: db, queue: make(chan *pending), quit: make(chan struct{}), done: make(chan struct{})}
	go w.loop()
	return w
}

// write can be given up only while it waits for its turn; once begun, its end is waited for, so that nobody takes a
// stored write for a lost one.
func (w *groupWriter) write(ctx context.Context, run func(*tx) error) error {
	p := &pending{run: run, answer: make(chan struct{})}
	select {
	case w.queue <- p:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.quit:
		return ErrClosed
	}
	<-p.answer
	if p.panic != nil {
		panic(p.panic) // in the goroutine whose function it was
	}
	return p.err
}

func (w *groupWriter) close() error {
	w.once.Do(func() { close(w.quit) })
	<-w.done
	return nil
}

func (w *groupWriter) loop() {
	defer close(w.done)
	for {
		select {
		case p := <-w.queue:
			w.group(p)
		case <-w.quit:
			return
		}
	}
}

// group runs p and what else waits in one transaction. Cancelling a statement would make SQLite roll back the whole
// group, so no caller's context reaches the database.
func (w *groupWriter) group(p *pending) {
	ctx := context.Background()
	members := []*pending{p}
	defer func() {
		for _, m := range members {
			close(m.answer)
		}
	}()
	fail := func(err error) {
		for _, m := range members {
			m.err = errors.Join(m.err, err)
		}
	}

	var raw bun.Tx
	err := whileBusy(ctx, func() (err error) {
		raw, err = w.db.rw.BeginTx(ctx, nil) // immediate
		return err
	})
	if err != nil {
		fail(fmt.Errorf("store: begin: %w", err))
		return
	}
	defer func() { _ = raw.Rollback() }() // after a commit it does nothing

	t := &tx{Tx: raw, db: w.db}
	end := time.Now().Add(groupTime)
	for {
		if err := t.member(ctx, p); err != nil {
			fail(fmt.Errorf("store: %w", err))
			return
		}
		if len(members) >= groupSize || time.Now().After(end) {
			break
		}
		select {
		case p = <-w.queue:
			members = append(members, p)
			continue
		default:
		}
		break
	}
	if err := t.appendEvents(ctx); err != nil {
		fail(fmt.Errorf("store: events: %w", err))
		return
	}
	if err := raw.Commit(); err != nil {
		fail(fmt.Errorf("store: commit: %w", err))
	}
}

// member runs one write in its savepoint. Its own error stays with it; the one returned ends the whole group.
func (t *tx) member(ctx context.Context, p *pending) error {
	if _, err := t.exec(ctx, "SAVEPOINT member"); err != nil {
		return err
	}
	own := &tx{Tx: t.Tx, db: t.db}
	func() {
		defer func() { p.panic = recover() }()
		p.err = p.run(own)
	}()
	if p.err != nil || p.panic != nil {
		if _, err := t.exec(ctx, "ROLLBACK TO member"); err != nil {
			return err
		}
	} else {
		t.events = append(t.events, own.events...)
	}
	_, err := t.exec(ctx, "RELEASE member")
	return err
}
