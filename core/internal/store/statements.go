package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/nagelfluh/nagelfluh/migrations"
)

// statements are those of the hot path, prepared once a connection. bun writes values into the text of a statement,
// which is parsed each time; the few statements of which thousands run a second are worth the exception. Their
// arguments are "?" in either dialect, and they hold no other question marks.
type statements struct {
	mu       sync.Mutex
	prepared map[string]*sql.Stmt // SQLite
	numbered map[string]string    // PostgreSQL
}

// exec runs a statement of the hot path.
func (t *tx) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t.db.dialect == migrations.PostgreSQL {
		return t.Tx.Tx.ExecContext(ctx, t.db.hot.number(query), cached(args)...)
	}
	s, err := t.db.hot.prepare(ctx, t.db.sql, query)
	if err != nil {
		return nil, err
	}
	return t.Tx.Tx.StmtContext(ctx, s).ExecContext(ctx, args...)
}

// get runs a query of the hot path that gives one row, and reads it.
func (t *tx) get(ctx context.Context, query string, args []any, dest ...any) error {
	if t.db.dialect == migrations.PostgreSQL {
		return t.Tx.Tx.QueryRowContext(ctx, t.db.hot.number(query), cached(args)...).Scan(dest...)
	}
	s, err := t.db.hot.prepare(ctx, t.db.sql, query)
	if err != nil {
		return err
	}
	return t.Tx.Tx.StmtContext(ctx, s).QueryRowContext(ctx, args...).Scan(dest...)
}

// get runs a reading query of the hot path outside of any write. It gives one row.
func (db *DB) get(ctx context.Context, query string, args []any, dest ...any) error {
	if db.dialect == migrations.PostgreSQL {
		return db.ro.DB.QueryRowContext(ctx, db.hotRead.number(query), cached(args)...).Scan(dest...)
	}
	s, err := db.hotRead.prepare(ctx, db.ro.DB, query)
	if err != nil {
		return err
	}
	return s.QueryRowContext(ctx, args...).Scan(dest...)
}

// insertion is "INSERT INTO … VALUES" for rows of so many columns, with what follows the values.
type insertion struct{ one, many string }

// rowsAtOnce is how many rows one statement inserts; what is left over goes one by one, so each insertion is prepared
// as two statements only.
const rowsAtOnce = 16

func newInsertion(table string, columns []string, tail string) insertion {
	head := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES "
	row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	return insertion{one: head + row + tail, many: head + row + strings.Repeat(", "+row, rowsAtOnce-1) + tail}
}

// insert writes n rows and says how many were stored; values appends those of row i.
func (t *tx) insert(ctx context.Context, into insertion, n int, values func(args []any, i int) []any) (stored int64, err error) {
	var args []any
	for i := 0; i < n; {
		query, end := into.one, i+1
		if n-i >= rowsAtOnce {
			query, end = into.many, i+rowsAtOnce
		}
		args = args[:0]
		for ; i < end; i++ {
			args = values(args, i)
		}
		result, err := t.exec(ctx, query, args...)
		if err != nil {
			return stored, err
		}
		affected, err := result.RowsAffected()
		if err != nil {
			return stored, err
		}
		stored += affected
	}
	return stored, nil
}

// cached asks pgx to prepare the statement and keep it with the connection.
func cached(args []any) []any {
	return append([]any{pgx.QueryExecModeCacheStatement}, args...)
}

// prepare needs a connection of the pool at the first use of a query: for a write, a second one.
func (s *statements) prepare(ctx context.Context, db *sql.DB, query string) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.prepared[query]; ok {
		return st, nil
	}
	st, err := db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if s.prepared == nil {
		s.prepared = map[string]*sql.Stmt{}
	}
	s.prepared[query] = st
	return st, nil
}

// number turns each "?" into "$1", "$2" and so on.
func (s *statements) number(query string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.numbered[query]; ok {
		return n
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	if s.numbered == nil {
		s.numbered = map[string]string{}
	}
	s.numbered[query] = b.String()
	return b.String()
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.prepared {
		_ = st.Close()
	}
	s.prepared = nil
	return nil
}
