package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

type projectModel struct {
	bun.BaseModel `bun:"table:projects,alias:pr"`

	ID          string `bun:",pk"`
	Name        string
	Labels      string
	HomeCluster string  `bun:",nullzero"`
	Allowed     *string // NULL: all
	CreatedAt   int64
	UpdatedAt   int64
	Revision    int64

	StorageBackend string `bun:",nullzero"`
}

type memberModel struct {
	bun.BaseModel `bun:"table:project_members,alias:pm"`

	ProjectID string `bun:",pk"`
	UserID    string `bun:",pk"`
}

func (m projectModel) project(members []string) project.Project {
	p := project.Project{
		ID: m.ID, Name: m.Name, Labels: labelsOf(m.Labels), HomeCluster: m.HomeCluster, Members: members,
		CreatedAt: timeOf(m.CreatedAt), UpdatedAt: timeOf(m.UpdatedAt), Revision: m.Revision,
		Storage: m.StorageBackend,
	}
	if m.Allowed != nil {
		p.Allowed = []string{} // an empty list allows none, no list allows all
		fromJSON(*m.Allowed, &p.Allowed)
	}
	return p
}

func projectRow(p project.Project) projectModel {
	m := projectModel{ID: p.ID, Name: p.Name, Labels: labelsJSON(p.Labels), HomeCluster: p.HomeCluster, StorageBackend: p.Storage}
	if p.Allowed != nil {
		s := toJSON(p.Allowed)
		m.Allowed = &s
	}
	return m
}

// Projects returns every project, by name.
func (db *DB) Projects(ctx context.Context) ([]project.Project, error) {
	var rows []projectModel
	if err := db.ro.NewSelect().Model(&rows).Order("pr.name").Scan(ctx); err != nil {
		return nil, err
	}
	var links []memberModel
	if err := db.ro.NewSelect().Model(&links).Order("pm.user_id").Scan(ctx); err != nil {
		return nil, err
	}
	members := map[string][]string{}
	for _, l := range links {
		members[l.ProjectID] = append(members[l.ProjectID], l.UserID)
	}
	all := make([]project.Project, len(rows))
	for i, m := range rows {
		all[i] = m.project(members[m.ID])
	}
	return all, nil
}

// Project returns one project by its id, or project.ErrNotFound.
func (db *DB) Project(ctx context.Context, id string) (project.Project, error) {
	return getProject(ctx, db.ro, db.ro.NewSelect().Where("pr.id = ?", id), id)
}

// ProjectByName returns one project by its name, or project.ErrNotFound.
func (db *DB) ProjectByName(ctx context.Context, name string) (project.Project, error) {
	return getProject(ctx, db.ro, db.ro.NewSelect().Where("pr.name = ?", name), name)
}

func getProject(ctx context.Context, db bun.IDB, q *bun.SelectQuery, what string) (project.Project, error) {
	var m projectModel
	err := q.Model(&m).Scan(ctx)
	if noRows(err) {
		return project.Project{}, fmt.Errorf("%w: %s", project.ErrNotFound, what)
	}
	if err != nil {
		return project.Project{}, err
	}
	var members []string
	if err := db.NewSelect().Table("project_members").Column("user_id").Where("project_id = ?", m.ID).Order("user_id").Scan(ctx, &members); err != nil {
		return project.Project{}, err
	}
	return m.project(members), nil
}

// CreateProject stores a project and returns it as stored. An empty id is filled in; times and revision are set here. A
// name in use is project.ErrNameUsed; an unknown home cluster is cluster.ErrNotFound, an unknown storage
// backend storage.ErrNotFound, an unknown member auth.ErrNotFound.
func (db *DB) CreateProject(ctx context.Context, p project.Project) (project.Project, error) {
	p.ID = cmp.Or(p.ID, newID())
	m := projectRow(p)
	m.CreatedAt = micros(now())
	m.UpdatedAt, m.Revision = m.CreatedAt, 1
	members := memberList(p.Members)
	err := db.write(ctx, "create-project", func(t *tx) error {
		if err := t.homeCluster(ctx, m.HomeCluster); err != nil {
			return err
		}
		if m.StorageBackend != "" {
			if err := t.projectStorage(ctx, m.ID, m.StorageBackend); err != nil {
				return err
			}
		}
		if _, err := t.NewInsert().Model(&m).Exec(ctx); err != nil {
			return nameUsed(err, project.ErrNameUsed, p.Name)
		}
		return t.setMembers(ctx, m.ID, members)
	})
	return m.project(members), err
}

// UpdateProject reads a project, changes it and writes it, as one step. With a revision it does so only when the project
// still has it, else project.ErrStale. The function is pure and may run more than once; a change that leaves everything
// as it was writes nothing.
func (db *DB) UpdateProject(ctx context.Context, id string, revision *int64, change func(*project.Project) error) (project.Project, error) {
	var out project.Project
	err := db.write(ctx, "update-project", func(t *tx) error {
		before, err := getProject(ctx, t, t.lock(t.NewSelect().Where("pr.id = ?", id), "UPDATE"), id)
		if err != nil {
			return err
		}
		if revision != nil && *revision != before.Revision {
			return fmt.Errorf("%w: %s is at revision %d, not %d", project.ErrStale, before.Name, before.Revision, *revision)
		}
		after := before
		after.Labels, after.Members = maps.Clone(before.Labels), slices.Clone(before.Members)
		after.Allowed = slices.Clone(before.Allowed)
		if err := change(&after); err != nil {
			return err
		}
		members := memberList(after.Members)
		next := projectRow(after)
		next.ID = before.ID
		if reflect.DeepEqual(projectRow(before), next) && slices.Equal(before.Members, members) {
			out = before
			return nil
		}
		if next.HomeCluster != before.HomeCluster {
			if err := t.homeCluster(ctx, next.HomeCluster); err != nil {
				return err
			}
		}
		if next.StorageBackend != before.Storage {
			if err := t.projectStorage(ctx, id, next.StorageBackend); err != nil {
				return err
			}
		}
		next.CreatedAt, next.UpdatedAt, next.Revision = micros(before.CreatedAt), micros(now()), before.Revision+1
		if _, err := t.NewUpdate().Model(&next).WherePK().Exec(ctx); err != nil {
			return nameUsed(err, project.ErrNameUsed, next.Name)
		}
		if !slices.Equal(before.Members, members) {
			if err := t.setMembers(ctx, id, members); err != nil {
				return err
			}
		}
		out = next.project(members)
		return nil
	})
	return out, err
}

func (t *tx) homeCluster(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return t.holdCluster(ctx, id)
}

// projectStorage makes sure that a backend is there and is neither removed nor moved before the transaction ends, and tells
// that the project has it from now on.
func (t *tx) projectStorage(ctx context.Context, projectID, id string) error {
	e := event.Event{Kind: event.StorageChanged, ProjectID: projectID, Message: "The project has no storage any more"}
	if id != "" {
		var name string
		query := "SELECT name FROM storage_backends WHERE id = ?"
		if t.db.rowLocks() {
			query += " FOR SHARE"
		}
		err := t.get(ctx, query, []any{id}, &name)
		if noRows(err) {
			return fmt.Errorf("%w: %s", storage.ErrNotFound, id)
		}
		if err != nil {
			return err
		}
		e.Message, e.Data = "The project's storage backend is "+name, []byte(toJSON(map[string]string{"storage": id}))
	}
	t.emit(ctx, e)
	return nil
}

func (t *tx) setMembers(ctx context.Context, projectID string, members []string) error {
	if _, err := t.NewDelete().Model((*memberModel)(nil)).Where("project_id = ?", projectID).Exec(ctx); err != nil {
		return err
	}
	for _, userID := range members {
		_, err := t.NewInsert().Model(&memberModel{ProjectID: projectID, UserID: userID}).Exec(ctx)
		if dangling(err) {
			return fmt.Errorf("user %s: %w", userID, auth.ErrNotFound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// memberList is sorted and without doubles; nil when it is empty.
func memberList(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}
