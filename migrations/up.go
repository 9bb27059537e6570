package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Errors of Up; compare with errors.Is.
var (
	// ErrNewer: the database holds a migration that this program does not know.
	ErrNewer = errors.New("the database was migrated by a newer version")
	// ErrDrift: an applied migration differs from the file of that name.
	ErrDrift = errors.New("an applied migration was changed afterwards")
)

// State is one migration and whether a database has it.
type State struct {
	Name      string    `json:"name"`
	AppliedAt time.Time `json:"applied_at,omitzero"` // zero: not applied
	// Drifted says that what was applied differs from the file.
	Drifted bool `json:"drifted,omitempty"`
	// Unknown says that there is no such file: the database is newer than the program.
	Unknown bool `json:"unknown,omitempty"`
}

// lockKey is the advisory lock of all migrations in PostgreSQL: the bytes "nagelflu".
const lockKey = 0x6e6167656c666c75

// marks is the table that remembers what was applied.
const marks = `CREATE TABLE IF NOT EXISTS schema_migrations (
    name TEXT NOT NULL PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)`

// Up applies what the database lacks and returns the names of what this call applied, in order. Each migration and its
// mark are one transaction, so a crash leaves none half done. Several programs may call Up at once: each migration is
// applied by one of them while the others wait. A database that is newer than the program, or whose applied migrations
// differ from the files, is refused before anything is changed.
func Up(ctx context.Context, db *sql.DB, d Dialect) (applied []string, err error) {
	return up(ctx, db, d, files)
}

func up(ctx context.Context, db *sql.DB, d Dialect, fsys fs.FS) ([]string, error) {
	all, err := list(fsys, d)
	if err != nil {
		return nil, err
	}
	// One connection for all, so that the settings of SQLite's connection hold in each transaction.
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	defer func() { _ = conn.Close() }() // goes back to the pool

	if err := locked(ctx, conn, d, func() error {
		if _, err := conn.ExecContext(ctx, marks); err != nil {
			return err
		}
		return check(ctx, conn, all)
	}); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}

	var applied []string
	for _, m := range all {
		var fresh bool
		if err := locked(ctx, conn, d, func() (err error) {
			fresh, err = apply(ctx, conn, m)
			return err
		}); err != nil {
			return applied, fmt.Errorf("migrations: %s: %w", m.Name, err)
		}
		if fresh {
			applied = append(applied, m.Name)
		}
	}
	return applied, nil
}

// Status tells which migrations the database has, in order. It changes nothing.
func Status(ctx context.Context, db *sql.DB, d Dialect) ([]State, error) {
	return status(ctx, db, d, files)
}

func status(ctx context.Context, db *sql.DB, d Dialect, fsys fs.FS) ([]State, error) {
	all, err := list(fsys, d)
	if err != nil {
		return nil, err
	}
	exists := `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'`
	if d == PostgreSQL {
		exists = `SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('schema_migrations')`
	}
	var n int
	if err := db.QueryRowContext(ctx, exists).Scan(&n); err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var have []mark
	if n > 0 {
		if have, err = readMarks(ctx, db); err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
	}
	return compare(all, have), nil
}

// locked runs f in a transaction that no other migration runs beside. The connection is raw because database/sql
// cannot begin an immediate transaction in SQLite.
func locked(ctx context.Context, conn *sql.Conn, d Dialect, f func() error) (err error) {
	begin := []string{"BEGIN", fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(lockKey))}
	if d == SQLite {
		begin = []string{"PRAGMA busy_timeout = 60000", "BEGIN IMMEDIATE"}
	}
	// The roll-back is for every way out; after a commit there is no transaction and it fails, which says nothing.
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	for _, s := range begin {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

func apply(ctx context.Context, conn *sql.Conn, m Migration) (bool, error) {
	// Another program may have applied it since the check.
	var n int
	if err := conn.QueryRowContext(ctx, `SELECT count(*) FROM schema_migrations WHERE name = '`+m.Name+`'`).Scan(&n); err != nil {
		return false, err
	}
	if n > 0 {
		return false, nil
	}
	for i, s := range m.statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return false, fmt.Errorf("statement %d: %w", i+1, err)
		}
	}
	// Names and checksums have a fixed alphabet, and placeholders differ between the dialects.
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`INSERT INTO schema_migrations (name, checksum, applied_at) VALUES ('%s', '%s', %d)`,
		m.Name, m.Checksum, time.Now().UnixMicro()))
	return err == nil, err
}

type mark struct {
	name, checksum string
	at             time.Time
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readMarks(ctx context.Context, q querier) ([]mark, error) {
	rows, err := q.QueryContext(ctx, `SELECT name, checksum, applied_at FROM schema_migrations`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []mark
	for rows.Next() {
		var (
			m  mark
			at int64
		)
		if err := rows.Scan(&m.name, &m.checksum, &at); err != nil {
			return nil, err
		}
		m.at = time.UnixMicro(at).UTC()
		all = append(all, m)
	}
	// Sorted here: a database's collation need not be bytewise.
	slices.SortFunc(all, func(a, b mark) int { return strings.Compare(a.name, b.name) })
	return all, rows.Err()
}

func check(ctx context.Context, conn *sql.Conn, all []Migration) error {
	have, err := readMarks(ctx, conn)
	if err != nil {
		return err
	}
	for _, s := range compare(all, have) {
		if s.Unknown {
			latest := "none"
			if len(all) > 0 {
				latest = all[len(all)-1].Name
			}
			return fmt.Errorf("%w: it has %s, this program knows migrations up to %s; run the version that migrated it, or restore a backup made before",
				ErrNewer, s.Name, latest)
		}
		if s.Drifted {
			return fmt.Errorf("%w: %s differs from what was applied at %s; run the version that applied it, or restore a backup",
				ErrDrift, s.Name, s.AppliedAt.Format(time.RFC3339))
		}
	}
	return nil
}

// compare merges what there is to apply with what was applied; both are in order.
func compare(all []Migration, have []mark) []State {
	var out []State
	for len(all) > 0 || len(have) > 0 {
		switch {
		case len(have) == 0 || len(all) > 0 && all[0].Name < have[0].name:
			out = append(out, State{Name: all[0].Name})
			all = all[1:]
		case len(all) == 0 || have[0].name < all[0].Name:
			out = append(out, State{Name: have[0].name, AppliedAt: have[0].at, Unknown: true})
			have = have[1:]
		default:
			out = append(out, State{Name: all[0].Name, AppliedAt: have[0].at, Drifted: have[0].checksum != all[0].Checksum})
			all, have = all[1:], have[1:]
		}
	}
	return out
}
