package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/nagelfluh/nagelfluh/migrations"
)

// connections bounds what one server asks of PostgreSQL.
const connections = 20

func openPostgres(ctx context.Context, o Options) (_ *DB, err error) {
	c, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err) // pgx masks the password
	}
	// bun writes values into the text, so each text is new and preparing it would only fill the cache. Its quoting
	// relies on backslashes being plain.
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c.RuntimeParams["standard_conforming_strings"] = "on"
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "nagelfluh"
	}
	db := &DB{dialect: migrations.PostgreSQL, log: o.Logger, sealer: o.Sealer, shared: o.Server, pg: c}
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	db.sql = stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		// A server that is frozen within a transaction holds the counter of the events and its epoch, and so all others and
		// the next leader.
		_, err := c.Exec(ctx, "SET idle_in_transaction_session_timeout = '6s'")
		return err
	}))
	db.closers = append(db.closers, db.sql.Close)
	db.sql.SetMaxOpenConns(connections)
	db.sql.SetMaxIdleConns(connections)
	db.sql.SetConnMaxIdleTime(5 * time.Minute)
	if err := db.sql.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("store: cannot reach the PostgreSQL database: %w", err)
	}
	db.rw = bun.NewDB(db.sql, pgdialect.New())
	db.ro = db.rw
	db.writer = txWriter{db}
	db.closers = append(db.closers, db.hot.close)
	if o.Server {
		db.closers = append(db.closers, db.hearOthers())
	}
	return db, nil
}

// hearing is how often the events of other servers are looked for.
const hearing = 150 * time.Millisecond

// hearOthers wakes the readers of events for those that other servers wrote. It asks for one number rather than be
// notified: a notification would be a part of every write.
func (db *DB) hearOthers() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(hearing)
		defer tick.Stop()
		var last int64
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			look, cancel := context.WithTimeout(ctx, 10*hearing)
			seq, err := db.LastSeq(look)
			cancel()
			if err != nil || seq == last { // before the first migration there is nothing to hear
				continue
			}
			last = seq
			db.hub.WakeAll()
		}
	})
	return func() error {
		cancel()
		wg.Wait()
		return nil
	}
}

// txWriter gives each write a transaction of its own, and runs it again when it failed only because of another one.
type txWriter struct{ db *DB }

const writeTries = 10

func (w txWriter) write(ctx context.Context, run func(*tx) error) error {
	for try := 1; ; try++ {
		err := w.once(ctx, run)
		if err == nil || !again(err) || try == writeTries {
			return err
		}
		w.db.log.Debug("running a write again", "try", try, "cause", err)
	}
}

// begin begins a transaction. After a restart of the database every connection that is kept may be dead, and none says so
// before it is used; what did not begin has done nothing.
func (w txWriter) begin(ctx context.Context) (raw bun.Tx, err error) {
	for range connections + 1 {
		if raw, err = w.db.rw.BeginTx(ctx, nil); err == nil || ctx.Err() != nil || errors.As(err, new(*pgconn.ConnectError)) {
			break
		}
	}
	return raw, err
}

func (w txWriter) once(ctx context.Context, run func(*tx) error) error {
	raw, err := w.begin(ctx)
	if err != nil {
		return fmt.Errorf("store: begin: %w", err)
	}
	defer func() { _ = raw.Rollback() }() // after a commit it does nothing
	t := &tx{Tx: raw, db: w.db}
	if err := run(t); err != nil {
		return err
	}
	if err := t.appendEvents(ctx); err != nil {
		return fmt.Errorf("store: events: %w", err)
	}
	if err := raw.Commit(); err != nil {
		return fmt.Errorf("store: commit: %w", err)
	}
	return nil
}
