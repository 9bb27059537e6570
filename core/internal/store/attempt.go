package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type attemptModel struct {
	bun.BaseModel `bun:"table:attempts,alias:a"`

	ID                string `bun:",pk"`
	VersionID         string
	ProcessID         string
	ProjectID         string
	Number            int32
	State             string
	ReasonCode        string
	Reason            string
	ClusterID         string `bun:",nullzero"`
	ClusterIdentity   string
	Namespace         string
	JobName           string
	JobUID            string `bun:"job_uid"`
	NextTryAt         int64
	Tries             int32
	ErrorSince        *int64
	IntentAt          *int64
	CreateDeadline    *int64
	UnreachableSince  *int64
	CancelRequestedAt *int64
	CancelRequestedBy string
	ExitCode          *int32
	Runs              int32
	LogsStored        bool
	BlockedBy         string
	BlockedSince      *int64
	StopCode          string
	Ran               int64
	RunStartedAt      *int64
	RunEnded          bool
	CreatedAt         int64
	PlacedAt          *int64
	JobAt             *int64
	StartedAt         *int64
	EndedAt           *int64
	UpdatedAt         int64
	Revision          int64
}

// attemptColumns and the lists of pointers and values below are in one order.
var attemptColumns = []string{
	"id", "version_id", "process_id", "project_id", "number", "state", "reason_code", "reason", "cluster_id",
	"cluster_identity", "namespace", "job_name", "job_uid", "next_try_at", "tries", "error_since", "intent_at",
	"create_deadline", "unreachable_since", "cancel_requested_at", "cancel_requested_by", "exit_code", "runs",
	"logs_stored", "blocked_by", "blocked_since", "stop_code", "ran", "run_started_at", "run_ended", "created_at", "placed_at", "job_at", "started_at", "ended_at", "updated_at", "revision",
}

// attemptFixed is how many of the columns, from the first, never change.
const attemptFixed = 5

func (m *attemptModel) values() []any {
	return []any{
		m.ID, m.VersionID, m.ProcessID, m.ProjectID, m.Number, m.State, m.ReasonCode, m.Reason, orNull(m.ClusterID),
		m.ClusterIdentity, m.Namespace, m.JobName, m.JobUID, m.NextTryAt, m.Tries, m.ErrorSince, m.IntentAt,
		m.CreateDeadline, m.UnreachableSince, m.CancelRequestedAt, m.CancelRequestedBy, m.ExitCode, m.Runs,
		m.LogsStored, m.BlockedBy, m.BlockedSince, m.StopCode, m.Ran, m.RunStartedAt, m.RunEnded, m.CreatedAt, m.PlacedAt, m.JobAt, m.StartedAt, m.EndedAt, m.UpdatedAt, m.Revision,
	}
}

func (m *attemptModel) pointers(clusterID *sql.NullString) []any {
	return []any{
		&m.ID, &m.VersionID, &m.ProcessID, &m.ProjectID, &m.Number, &m.State, &m.ReasonCode, &m.Reason, clusterID,
		&m.ClusterIdentity, &m.Namespace, &m.JobName, &m.JobUID, &m.NextTryAt, &m.Tries, &m.ErrorSince, &m.IntentAt,
		&m.CreateDeadline, &m.UnreachableSince, &m.CancelRequestedAt, &m.CancelRequestedBy, &m.ExitCode, &m.Runs,
		&m.LogsStored, &m.BlockedBy, &m.BlockedSince, &m.StopCode, &m.Ran, &m.RunStartedAt, &m.RunEnded, &m.CreatedAt, &m.PlacedAt, &m.JobAt, &m.StartedAt, &m.EndedAt, &m.UpdatedAt, &m.Revision,
	}
}

var (
	selectAttempt = "SELECT " + strings.Join(attemptColumns, ", ") + " FROM attempts WHERE id = ?"
	// holdAttempt also holds the epoch of the one who writes, as leadership has it.
	holdAttempt = "SELECT a." + strings.Join(attemptColumns, ", a.") + " FROM attempts a, leadership l " +
		"WHERE a.id = ? AND l.id = 1 AND l.epoch = ? FOR UPDATE OF a FOR KEY SHARE OF l"
	updateAttempt  = "UPDATE attempts SET " + strings.Join(attemptColumns[attemptFixed:], " = ?, ") + " = ? WHERE id = ?"
	insertAttempts = newInsertion("attempts", attemptColumns, "")
)

// attemptForUpdate reads the row and, in PostgreSQL, keeps it from changing until the end of the transaction; so it does
// with the leader's epoch when the write is the leader's.
func (t *tx) attemptForUpdate(ctx context.Context, id string) (m attemptModel, err error) {
	query, args := selectAttempt, []any{id}
	switch {
	case t.epoch != 0:
		query, args = holdAttempt, []any{id, t.epoch}
	case t.db.rowLocks():
		query += " FOR UPDATE"
	}
	var clusterID sql.NullString
	err = t.get(ctx, query, args, m.pointers(&clusterID)...)
	m.ClusterID = clusterID.String
	if noRows(err) {
		if t.epoch != 0 {
			if err := t.fence(ctx); err != nil {
				return m, err
			}
		}
		return m, fmt.Errorf("attempt %s: %w", id, process.ErrNotFound)
	}
	return m, err
}

func (m attemptModel) attempt() process.Attempt {
	return process.Attempt{
		ID: m.ID, VersionID: m.VersionID, ProjectID: m.ProjectID, Number: m.Number, State: process.State(m.State),
		ReasonCode: m.ReasonCode, Reason: m.Reason, ClusterID: m.ClusterID, ClusterIdentity: m.ClusterIdentity,
		Namespace: m.Namespace, JobName: m.JobName, JobUID: m.JobUID, NextTryAt: timeOf(m.NextTryAt), Tries: m.Tries,
		ErrorSince: timeOrNil(m.ErrorSince), IntentAt: timeOrNil(m.IntentAt), CreateDeadline: timeOrNil(m.CreateDeadline),
		UnreachableSince: timeOrNil(m.UnreachableSince), CancelRequestedAt: timeOrNil(m.CancelRequestedAt),
		CancelRequestedBy: m.CancelRequestedBy, ExitCode: m.ExitCode, Runs: m.Runs, LogsStored: m.LogsStored,
		BlockedBy: m.BlockedBy, BlockedSince: timeOrNil(m.BlockedSince), StopCode: m.StopCode,
		Ran: time.Duration(m.Ran) * time.Microsecond, RunStartedAt: timeOrNil(m.RunStartedAt), RunEnded: m.RunEnded,
		CreatedAt: timeOf(m.CreatedAt), PlacedAt: timeOrNil(m.PlacedAt), JobAt: timeOrNil(m.JobAt),
		StartedAt: timeOrNil(m.StartedAt), EndedAt: timeOrNil(m.EndedAt), UpdatedAt: timeOf(m.UpdatedAt), Revision: m.Revision,
	}
}

func attemptRow(a process.Attempt, processID string) attemptModel {
	return attemptModel{
		ID: a.ID, VersionID: a.VersionID, ProcessID: processID, ProjectID: a.ProjectID, Number: a.Number, State: string(a.State),
		ReasonCode: a.ReasonCode, Reason: text(a.Reason), ClusterID: a.ClusterID, ClusterIdentity: a.ClusterIdentity,
		Namespace: a.Namespace, JobName: a.JobName, JobUID: a.JobUID, NextTryAt: micros(a.NextTryAt), Tries: a.Tries,
		ErrorSince: microsOrNull(a.ErrorSince), IntentAt: microsOrNull(a.IntentAt), CreateDeadline: microsOrNull(a.CreateDeadline),
		UnreachableSince: microsOrNull(a.UnreachableSince), CancelRequestedAt: microsOrNull(a.CancelRequestedAt),
		CancelRequestedBy: a.CancelRequestedBy, ExitCode: a.ExitCode, Runs: a.Runs, LogsStored: a.LogsStored,
		BlockedBy: a.BlockedBy, BlockedSince: microsOrNull(a.BlockedSince), StopCode: a.StopCode,
		Ran: a.Ran.Microseconds(), RunStartedAt: microsOrNull(a.RunStartedAt), RunEnded: a.RunEnded,
		CreatedAt: micros(a.CreatedAt), PlacedAt: microsOrNull(a.PlacedAt), JobAt: microsOrNull(a.JobAt),
		StartedAt: microsOrNull(a.StartedAt), EndedAt: microsOrNull(a.EndedAt), UpdatedAt: micros(a.UpdatedAt), Revision: a.Revision,
	}
}

// Attempt returns one attempt, or process.ErrNotFound.
func (db *DB) Attempt(ctx context.Context, id string) (process.Attempt, error) {
	var m attemptModel
	var cluster sql.NullString
	err := db.get(ctx, selectAttempt, []any{id}, m.pointers(&cluster)...)
	m.ClusterID = cluster.String
	if noRows(err) {
		return process.Attempt{}, fmt.Errorf("attempt %s: %w", id, process.ErrNotFound)
	}
	return m.attempt(), err
}

// Attempts returns the attempts of a version, the first one first. An unknown version has none.
func (db *DB) Attempts(ctx context.Context, versionID string) ([]process.Attempt, error) {
	return db.attempts(ctx, func(q *bun.SelectQuery) {
		q.Where("a.version_id = ?", versionID).Order("a.number")
	})
}

// PlacingDue returns up to n attempts that wait for a cluster and are to be tried by that time, in the order of submission.
func (db *DB) PlacingDue(ctx context.Context, by time.Time, n int) ([]process.Attempt, error) {
	return db.attempts(ctx, func(q *bun.SelectQuery) {
		q.Where("a.state = 'placing'").Where("a.next_try_at <= ?", micros(by)).Order("a.version_id", "a.id").Limit(int64(n))
	})
}

// LiveAttempts returns the attempts that are pinned to a cluster and have not ended, the oldest first.
func (db *DB) LiveAttempts(ctx context.Context, clusterID string) ([]process.Attempt, error) {
	return db.attempts(ctx, func(q *bun.SelectQuery) {
		q.Where("a.ended_at IS NULL").Where("a.cluster_id = ?", clusterID).Order("a.id")
	})
}

// LogsPending returns the attempts of a cluster that have ended, had a Job, and whose logs are not stored to their end,
// the oldest first.
func (db *DB) LogsPending(ctx context.Context, clusterID string) ([]process.Attempt, error) {
	return db.attempts(ctx, func(q *bun.SelectQuery) {
		q.Where("a.logs_stored = FALSE").Where("a.ended_at IS NOT NULL").Where("a.job_uid <> ''").
			Where("a.cluster_id = ?", clusterID).Order("a.id")
	})
}

// LeftLogs returns the removed clusters of which LogsPending still has attempts.
func (db *DB) LeftLogs(ctx context.Context) (clusterIDs []string, err error) {
	pending := db.ro.NewSelect().Table("attempts").ColumnExpr("1").Where("logs_stored = FALSE").Where("ended_at IS NOT NULL").
		Where("job_uid <> ''").Where("attempts.cluster_id = c.id")
	err = db.ro.NewSelect().Model((*clusterModel)(nil)).Column("c.id").Where("c.removed_at IS NOT NULL").
		Where("EXISTS (?)", pending).Order("c.id").Scan(ctx, &clusterIDs)
	return clusterIDs, err
}

// LiveCounts returns the number of attempts that are pinned and have not ended, by cluster. Clusters without any are
// absent.
func (db *DB) LiveCounts(ctx context.Context) (map[string]int32, error) {
	var rows []struct {
		ClusterID string
		N         int32
	}
	err := db.ro.NewSelect().Table("attempts").Column("cluster_id").ColumnExpr("count(*) AS n").
		Where("ended_at IS NULL").Where("cluster_id IS NOT NULL").Group("cluster_id").Scan(ctx, &rows)
	counts := make(map[string]int32, len(rows))
	for _, r := range rows {
		counts[r.ClusterID] = r.N
	}
	return counts, err
}

// LiveStates returns the number of attempts that have not ended, by state, those without a cluster included. States
// without any are absent.
func (db *DB) LiveStates(ctx context.Context) (map[process.State]int64, error) {
	var rows []struct {
		State string
		N     int64
	}
	err := db.ro.NewSelect().Table("attempts").Column("state").ColumnExpr("count(*) AS n").Where("ended_at IS NULL").
		Group("state").Scan(ctx, &rows)
	counts := make(map[process.State]int64, len(rows))
	for _, r := range rows {
		counts[process.State(r.State)] = r.N
	}
	return counts, err
}

func (db *DB) attempts(ctx context.Context, where func(*bun.SelectQuery)) ([]process.Attempt, error) {
	var rows []attemptModel
	q := db.ro.NewSelect().Model(&rows)
	where(q)
	if err := q.Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]process.Attempt, len(rows))
	for i, m := range rows {
		all[i] = m.attempt()
	}
	return all, nil
}
