package check

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	_ "modernc.org/sqlite"             // the driver
)

// Open opens the server's database for reading only; the server may be running.
func Open(path string) (*sql.DB, error) {
	if strings.HasPrefix(path, "postgres://") {
		return sql.Open("pgx", path)
	}
	return sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(10000)")
}

// Unsettled says how many versions have not ended, and how many logs of ended attempts are not stored yet.
func Unsettled(ctx context.Context, db *sql.DB) (live, unstored int, err error) {
	err = db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM attempts WHERE ended_at IS NULL),
		(SELECT COUNT(*) FROM attempts WHERE ended_at IS NOT NULL AND job_uid <> '' AND NOT logs_stored)`).Scan(&live, &unstored)
	return live, unstored, err
}

// ClusterIDs are the ids of the clusters by name.
func ClusterIDs(ctx context.Context, db *sql.DB) (map[string]string, error) {
	out := map[string]string{}
	return out, each(ctx, db, `SELECT name, id FROM clusters`, func(scan func(...any) error) error {
		var name, id string
		err := scan(&name, &id)
		out[name] = id
		return err
	})
}

// Rows reads what the server has stored.
func (in *Input) Rows(ctx context.Context, db *sql.DB) error {
	err := each(ctx, db, `SELECT id, COALESCE(idempotency_key, ''), state, attempt_id FROM process_versions ORDER BY id`, func(scan func(...any) error) error {
		var v Version
		err := scan(&v.ID, &v.Key, &v.State, &v.Attempt)
		in.Versions = append(in.Versions, v)
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, db, `SELECT id, version_id, number, state, reason_code, reason, COALESCE(cluster_id, ''), job_name, job_uid, exit_code, logs_stored,
		cancel_requested_at, created_at, placed_at, job_at, started_at, ended_at FROM attempts ORDER BY version_id, number`, func(scan func(...any) error) error {
		var a Attempt
		var code, cancel, created, placed, job, started, ended sql.NullInt64
		err := scan(&a.ID, &a.Version, &a.Number, &a.State, &a.Code, &a.Reason, &a.Cluster, &a.Job, &a.UID, &code, &a.LogsStored,
			&cancel, &created, &placed, &job, &started, &ended)
		if code.Valid {
			n := int(code.Int64)
			a.ExitCode = &n
		}
		a.CancelRequested, a.Created, a.Placed = at(cancel), at(created), at(placed)
		a.JobAt, a.Started, a.Ended = at(job), at(started), at(ended)
		in.Attempts = append(in.Attempts, a)
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, db, `SELECT seq, at, attempt_id, state FROM events WHERE attempt_id IS NOT NULL AND state <> '' ORDER BY seq`, func(scan func(...any) error) error {
		var c Change
		var when int64
		err := scan(&c.Seq, &when, &c.Attempt, &c.State)
		c.At = time.UnixMicro(when)
		in.Changes = append(in.Changes, c)
		return err
	})
}

func at(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64)
}

func each(ctx context.Context, db *sql.DB, query string, row func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("read the server's database: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("read the server's database: %w", err)
		}
	}
	return rows.Err()
}
