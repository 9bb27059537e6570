// Package store keeps everything that must survive a power cut: bun on SQLite (the default) or PostgreSQL.
//
// All writes go through DB.write: on SQLite one writer groups the waiting writes into one commit, on PostgreSQL each is a
// transaction of its own. Reads never wait for a write. Events get their numbers in the order of the commits. No method
// holds a transaction while it calls anything but the database; the functions that callers hand in must be pure and
// may run more than once.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/failpoint"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// Options say which database to open.
type Options struct {
	// URL is "sqlite:PATH" or "postgres://user:password@host:port/database?…".
	URL string
	// Server: this is a server's. On SQLite a second one is refused with ErrLocked. On PostgreSQL there may be several, of
	// which one at a time leads: until Lead, the writes of the leader are refused with ErrNotLeader. Other openers, such as a
	// command that shows the migrations, leave it false.
	Server bool
	Logger hclog.Logger // nil: silent
	// Sealer encrypts provider configs; nil: none can be stored or read, as in commands that need none.
	Sealer Sealer
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	dialect migrations.Dialect
	sql     *sql.DB // for writing
	rw      *bun.DB // the same, through bun
	ro      *bun.DB // for reading; on PostgreSQL the same as rw
	hot     statements
	hotRead statements // those of ro
	memory  memory
	shared  bool            // there may be other servers
	pg      *pgx.ConnConfig // of PostgreSQL
	writer  writer
	hub     event.Hub
	log     hclog.Logger
	sealer  Sealer
	closers []func() error // run in reverse order
}

// writer runs a write in a transaction, and returns after the commit.
type writer interface {
	write(ctx context.Context, f func(*tx) error) error
}

// Open opens the database. It does not migrate; see Migrate.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	scheme, rest, _ := strings.Cut(o.URL, ":")
	switch scheme {
	case "sqlite":
		return openSQLite(ctx, strings.TrimPrefix(rest, "//"), o)
	case "postgres", "postgresql":
		return openPostgres(ctx, o)
	}
	// The text may hold a password, so it is not repeated.
	return nil, fmt.Errorf("store: the database URL must begin with sqlite: or postgres://")
}

// Close waits for the writes that have begun and closes the database. Closing twice is safe; later calls of other
// methods fail.
func (db *DB) Close() error {
	var first error
	for len(db.closers) > 0 {
		last := len(db.closers) - 1
		if err := db.closers[last](); err != nil && first == nil {
			first = err
		}
		db.closers = db.closers[:last]
	}
	return first
}

// Hub is woken after each commit that appended events or changed an attempt. For events of other servers it is woken a
// little later, and for changes of theirs without an event not at all.
func (db *DB) Hub() *event.Hub { return &db.hub }

// Ping says whether the database answers.
func (db *DB) Ping(ctx context.Context) error { return db.ro.PingContext(ctx) }

// Migrate brings the schema up to date and returns what it applied.
func (db *DB) Migrate(ctx context.Context) (applied []string, err error) {
	defer db.memory.begin()()
	return migrations.Up(ctx, db.sql, db.dialect)
}

// MigrationStatus tells which migrations the database has. It changes nothing.
func (db *DB) MigrationStatus(ctx context.Context) ([]migrations.State, error) {
	return migrations.Status(ctx, db.sql, db.dialect)
}

// write runs f in a transaction, between the failpoints of the operation, and wakes the readers of events.
func (db *DB) write(ctx context.Context, op string, f func(*tx) error) error {
	epoch, err := db.permit(op)
	if err != nil {
		return err
	}
	failpoint.Hit("store." + op + ".before")
	news := false
	var kinds []event.Kind
	written := func() {}
	if forgetful[op] {
		written = db.memory.begin()
	}
	err = db.writer.write(ctx, func(t *tx) error {
		news, kinds = false, kinds[:0] // f may run again
		if t.epoch = epoch; epoch != 0 && !fencesItself[op] {
			if err := t.fence(ctx); err != nil {
				return err
			}
		}
		if err := f(t); err != nil {
			return err
		}
		news = t.news || len(t.events) > 0
		for _, e := range t.events {
			if !slices.Contains(kinds, e.Kind) {
				kinds = append(kinds, e.Kind)
			}
		}
		return nil
	})
	written()
	if err != nil {
		return err
	}
	failpoint.Hit("store." + op + ".after")
	if news {
		db.hub.Wake(kinds...)
	}
	return nil
}

// tx is one write: a transaction, or a savepoint within one.
type tx struct {
	bun.Tx
	db *DB
	// epoch is the one that the write needs to be the present one; 0: any.
	epoch int64
	// events are appended at the very end, because their numbers hold up all other writers until the commit.
	events []event.Event
	// news says that there is something to wake for without an event.
	news bool
}

// rowLocks says whether a row that is read in order to write it must be locked. SQLite has one writer and needs none.
func (db *DB) rowLocks() bool { return db.dialect == migrations.PostgreSQL }

// lock adds that lock to a query.
func (t *tx) lock(q *bun.SelectQuery, strength string) *bun.SelectQuery {
	if t.db.rowLocks() {
		return q.For(strength)
	}
	return q
}

// now is the present in the precision that both databases keep.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func newID() string { return uuid.Must(uuid.NewV7()).String() }
