package store

import (
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Sentinel errors of the package; compare with errors.Is. What is missing, in use or stale is said with the errors of
// the domain packages.
var (
	// ErrLocked: another server runs on this database.
	ErrLocked = errors.New("another server uses this database")
	// ErrClosed: the database was closed.
	ErrClosed = errors.New("the database is closed")
)

func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// duplicate says whether a write broke a unique index.
func duplicate(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "23505"
	}
	if lite := (*sqlite.Error)(nil); errors.As(err, &lite) {
		return lite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || lite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}

// dangling says whether a write named a row of another table that does not exist.
func dangling(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "23503"
	}
	lite := (*sqlite.Error)(nil)
	return errors.As(err, &lite) && lite.Code() == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// errAgain makes the writer run a write again from its start, because another one got between.
var errAgain = errors.New("another write came between")

// again says whether a transaction of PostgreSQL failed only because of another one.
func again(err error) bool {
	if errors.Is(err, errAgain) {
		return true
	}
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
