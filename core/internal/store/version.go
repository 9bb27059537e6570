package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type processModel struct {
	bun.BaseModel `bun:"table:processes,alias:p"`

	ID          string `bun:",pk"`
	ProjectID   string
	Name        string
	Type        string
	Labels      string
	CreatedBy   string
	CreatedAt   int64
	LastVersion int64
}

func (m processModel) process() process.Process {
	return process.Process{
		ID: m.ID, ProjectID: m.ProjectID, Name: m.Name, Type: m.Type, Labels: labelsOf(m.Labels), CreatedBy: m.CreatedBy,
		CreatedAt: timeOf(m.CreatedAt),
	}
}

type versionModel struct {
	bun.BaseModel `bun:"table:process_versions,alias:v"`

	ID             string `bun:",pk"`
	ProcessID      string
	ProjectID      string
	Number         int64
	Spec           string
	SubmittedBy    string
	IdempotencyKey string `bun:",nullzero"`
	BodyHash       string
	AttemptID      string
	State          string
	ClusterID      string `bun:",nullzero"`
	CreatedAt      int64

	Process *processModel `bun:"rel:belongs-to,join:process_id=id"`
	Attempt *attemptModel `bun:"rel:belongs-to,join:attempt_id=id"`
}

func (m versionModel) version() process.Version {
	v := process.Version{
		ID: m.ID, ProcessID: m.ProcessID, ProjectID: m.ProjectID, Number: m.Number, SubmittedBy: m.SubmittedBy,
		IdempotencyKey: m.IdempotencyKey, BodyHash: m.BodyHash, CreatedAt: timeOf(m.CreatedAt),
	}
	fromJSON(m.Spec, &v.Spec)
	if m.Process != nil {
		v.ProcessName, v.ProcessType, v.ProcessLabels = m.Process.Name, m.Process.Type, labelsOf(m.Process.Labels)
	}
	if m.Attempt != nil {
		v.Attempt = m.Attempt.attempt()
	}
	return v
}

// Process returns one process by its id, or process.ErrNotFound.
func (db *DB) Process(ctx context.Context, id string) (process.Process, error) {
	return getProcess(ctx, db.ro.NewSelect().Where("p.id = ?", id), id)
}

// ProcessByName returns one process by its name in a project, or process.ErrNotFound.
func (db *DB) ProcessByName(ctx context.Context, projectID, name string) (process.Process, error) {
	return getProcess(ctx, db.ro.NewSelect().Where("p.project_id = ?", projectID).Where("p.name = ?", name), name)
}

func getProcess(ctx context.Context, q *bun.SelectQuery, what string) (process.Process, error) {
	var m processModel
	err := q.Model(&m).Scan(ctx)
	if noRows(err) {
		return process.Process{}, fmt.Errorf("process %s: %w", what, process.ErrNotFound)
	}
	return m.process(), err
}

// Processes returns a page of processes, the newest first, and the cursor of the next page; empty: this is the last
// one. An empty project means all of them, an empty cursor the first page, a limit of 0 means 100 (at most 1000).
func (db *DB) Processes(ctx context.Context, projectID, cursor string, n int) ([]process.Process, string, error) {
	var rows []processModel
	q := db.ro.NewSelect().Model(&rows)
	if projectID != "" {
		q.Where("p.project_id = ?", projectID)
	}
	next, err := page(ctx, q, "p.id", cursor, n, &rows, func(m processModel) string { return m.ID })
	if err != nil {
		return nil, "", err
	}
	all := make([]process.Process, len(rows))
	for i, m := range rows {
		all[i] = m.process()
	}
	return all, next, nil
}

// Version returns one version with its latest attempt, or process.ErrNotFound.
func (db *DB) Version(ctx context.Context, id string) (process.Version, error) {
	var m versionModel
	var p processModel
	var a attemptModel
	var key, cluster sql.NullString
	err := db.get(ctx, selectVersion, []any{id}, append([]any{
		&m.ID, &m.ProcessID, &m.ProjectID, &m.Number, &m.Spec, &m.SubmittedBy, &key, &m.BodyHash, &m.CreatedAt, &p.Name, &p.Type, &p.Labels,
	}, a.pointers(&cluster)...)...)
	if noRows(err) {
		return process.Version{}, fmt.Errorf("version %s: %w", id, process.ErrNotFound)
	}
	if err != nil {
		return process.Version{}, err
	}
	m.IdempotencyKey, a.ClusterID = key.String, cluster.String
	m.Process, m.Attempt = &p, &a
	return m.version(), nil
}

var selectVersion = "SELECT v.id, v.process_id, v.project_id, v.number, v.spec, v.submitted_by, v.idempotency_key, v.body_hash, v.created_at, " +
	"p.name, p.type, p.labels, a." + strings.Join(attemptColumns, ", a.") +
	" FROM process_versions v JOIN processes p ON p.id = v.process_id JOIN attempts a ON a.id = v.attempt_id WHERE v.id = ?"

func version(ctx context.Context, q bun.IDB, id string) (process.Version, error) {
	var m versionModel
	err := q.NewSelect().Model(&m).Relation("Process").Relation("Attempt").Where("v.id = ?", id).Scan(ctx)
	if noRows(err) {
		return process.Version{}, fmt.Errorf("version %s: %w", id, process.ErrNotFound)
	}
	return m.version(), err
}

// VersionFilter selects versions. Empty fields select all.
type VersionFilter struct {
	ProjectID string
	ProcessID string
	State     process.State // of the latest attempt
	ClusterID string        // of the latest attempt
	Cursor    string        // from the page before; empty: the first page
	Limit     int           // 0: 100; at most 1000
}

// Versions returns a page of versions with their latest attempts, the newest first, and the cursor of the next page;
// empty: this is the last one. Over a full walk each version that was there at its begin comes once, whatever is
// submitted meanwhile.
func (db *DB) Versions(ctx context.Context, f VersionFilter) ([]process.Version, string, error) {
	var rows []versionModel
	q := db.ro.NewSelect().Model(&rows).Relation("Process").Relation("Attempt")
	for _, c := range []struct{ column, value string }{
		{"v.project_id", f.ProjectID}, {"v.process_id", f.ProcessID}, {"v.state", string(f.State)}, {"v.cluster_id", f.ClusterID},
	} {
		if c.value != "" {
			q.Where("? = ?", bun.Ident(c.column), c.value)
		}
	}
	next, err := page(ctx, q, "v.id", f.Cursor, f.Limit, &rows, func(m versionModel) string { return m.ID })
	if err != nil {
		return nil, "", err
	}
	all := make([]process.Version, len(rows))
	for i, m := range rows {
		all[i] = m.version()
	}
	return all, next, nil
}

// page reads one page of rows, the greatest id first, and returns the cursor of the next one: the last id of this. It
// asks for one row more to see whether there is a next page.
func page[M any](ctx context.Context, q *bun.SelectQuery, column, cursor string, n int, rows *[]M, id func(M) string) (next string, err error) {
	n = limit(n)
	if cursor != "" {
		q.Where("? < ?", bun.Ident(column), cursor)
	}
	if err := q.OrderExpr("? DESC", bun.Ident(column)).Limit(int64(n) + 1).Scan(ctx); err != nil {
		return "", err
	}
	if len(*rows) > n {
		*rows = (*rows)[:n]
		next = id((*rows)[n-1])
	}
	return next, nil
}
