package store

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

type storageModel struct {
	bun.BaseModel `bun:"table:storage_backends,alias:sb"`

	ID          string `bun:",pk"`
	Name        string
	Type        string
	Endpoint    string
	Region      string
	Bucket      string
	Prefix      string
	PathStyle   bool
	Labels      string
	Credentials string // sealed
	CreatedAt   int64
	UpdatedAt   int64
	Revision    int64
}

func (db *DB) storageBackend(m storageModel) storage.Backend {
	return storage.Backend{
		ID: m.ID, Name: m.Name, Type: m.Type, Endpoint: m.Endpoint, Region: m.Region, Bucket: m.Bucket, Prefix: m.Prefix,
		PathStyle: m.PathStyle, Labels: labelsOf(m.Labels), Credentials: db.credentialsOf(m),
		CreatedAt: timeOf(m.CreatedAt), UpdatedAt: timeOf(m.UpdatedAt), Revision: m.Revision,
	}
}

// storageRow is what an admin says of a backend; the credentials, which are to be sealed, are not in it.
func storageRow(b storage.Backend) storageModel {
	return storageModel{
		ID: b.ID, Name: b.Name, Type: b.Type, Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Bucket, Prefix: b.Prefix,
		PathStyle: b.PathStyle, Labels: labelsJSON(b.Labels),
	}
}

// StorageBackends returns every backend, by name.
func (db *DB) StorageBackends(ctx context.Context) ([]storage.Backend, error) {
	var rows []storageModel
	if err := db.ro.NewSelect().Model(&rows).Order("sb.name").Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]storage.Backend, len(rows))
	for i, m := range rows {
		all[i] = db.storageBackend(m)
	}
	return all, nil
}

// StorageBackend returns one backend by its id, or storage.ErrNotFound.
func (db *DB) StorageBackend(ctx context.Context, id string) (storage.Backend, error) {
	var m storageModel
	err := db.ro.NewSelect().Model(&m).Where("sb.id = ?", id).Scan(ctx)
	if noRows(err) {
		return storage.Backend{}, fmt.Errorf("%w: %s", storage.ErrNotFound, id)
	}
	if err != nil {
		return storage.Backend{}, err
	}
	return db.storageBackend(m), nil
}

// StorageOf returns the backend of a project; false: it has none.
func (db *DB) StorageOf(ctx context.Context, projectID string) (storage.Backend, bool, error) {
	var m storageModel
	err := db.ro.NewSelect().Model(&m).Join("JOIN projects AS pr ON pr.storage_backend = sb.id").Where("pr.id = ?", projectID).Scan(ctx)
	if noRows(err) {
		return storage.Backend{}, false, nil
	}
	if err != nil {
		return storage.Backend{}, false, err
	}
	return db.storageBackend(m), true, nil
}

// CreateStorageBackend stores a backend and returns it as stored. An empty id is filled in; times and revision are set
// here. A name in use is storage.ErrNameUsed.
func (db *DB) CreateStorageBackend(ctx context.Context, b storage.Backend) (storage.Backend, error) {
	b.ID = cmp.Or(b.ID, newID())
	m := storageRow(b)
	m.CreatedAt = micros(now())
	m.UpdatedAt, m.Revision = m.CreatedAt, 1
	err := db.write(ctx, "create-storage", func(t *tx) (err error) {
		if err := t.holdKeys(ctx); err != nil {
			return err
		}
		if m.Credentials, err = t.sealCredentials(b.ID, b.Credentials, ""); err != nil {
			return err
		}
		if _, err := t.NewInsert().Model(&m).Exec(ctx); err != nil {
			return nameUsed(err, storage.ErrNameUsed, b.Name)
		}
		t.emitStorage(ctx, m, "added")
		return nil
	})
	if err != nil {
		return storage.Backend{}, err
	}
	return db.storageBackend(m), nil
}

// UpdateStorageBackend reads a backend, changes it and writes it, as one step. With a revision it does so only when the
// backend still has it, else storage.ErrStale. The function is pure and may run more than once; a change that leaves
// everything as it was writes nothing. Neither bucket nor prefix changes while projects use it: *storage.InUse.
func (db *DB) UpdateStorageBackend(ctx context.Context, id string, revision *int64, change func(*storage.Backend) error) (storage.Backend, error) {
	var out storage.Backend
	err := db.write(ctx, "update-storage", func(t *tx) error {
		// Before the row is read: what is stored again must not need a key that is being removed.
		if err := t.holdKeys(ctx); err != nil {
			return err
		}
		m, err := t.storageForUpdate(ctx, id, revision)
		if err != nil {
			return err
		}
		b := db.storageBackend(m)
		if err := change(&b); err != nil {
			return err
		}
		next := storageRow(b)
		if next.Credentials, err = t.sealCredentials(id, b.Credentials, m.Credentials); err != nil {
			return err
		}
		next.ID, next.CreatedAt, next.UpdatedAt, next.Revision = m.ID, m.CreatedAt, m.UpdatedAt, m.Revision
		if reflect.DeepEqual(m, next) {
			out = db.storageBackend(m)
			return nil
		}
		if next.Bucket != m.Bucket || next.Prefix != m.Prefix {
			if err := t.storageUnused(ctx, m); err != nil {
				return err
			}
		}
		next.UpdatedAt = micros(now())
		next.Revision++
		if _, err := t.NewUpdate().Model(&next).ExcludeColumn("id", "created_at").WherePK().Exec(ctx); err != nil {
			return nameUsed(err, storage.ErrNameUsed, next.Name)
		}
		t.emitStorage(ctx, next, "changed")
		out = db.storageBackend(next)
		return nil
	})
	return out, err
}

// DeleteStorageBackend removes a backend that no project uses, else *storage.InUse. With a revision it does so only when
// the backend still has it, else storage.ErrStale.
func (db *DB) DeleteStorageBackend(ctx context.Context, id string, revision *int64) error {
	return db.write(ctx, "delete-storage", func(t *tx) error {
		m, err := t.storageForUpdate(ctx, id, revision)
		if err != nil {
			return err
		}
		if err := t.storageUnused(ctx, m); err != nil {
			return err
		}
		if _, err = t.NewDelete().Model(&m).WherePK().Exec(ctx); err != nil {
			return err
		}
		t.emitStorage(ctx, m, "removed")
		return nil
	})
}

func (t *tx) emitStorage(ctx context.Context, m storageModel, what string) {
	t.emit(ctx, event.Event{Kind: event.StorageChanged, Message: "Storage backend " + m.Name + " " + what, Data: []byte(toJSON(map[string]string{"storage": m.ID}))})
}

func (t *tx) storageForUpdate(ctx context.Context, id string, revision *int64) (storageModel, error) {
	var m storageModel
	err := t.lock(t.NewSelect().Model(&m).Where("sb.id = ?", id), "UPDATE").Scan(ctx)
	if noRows(err) {
		return m, fmt.Errorf("%w: %s", storage.ErrNotFound, id)
	}
	if err == nil && revision != nil && *revision != m.Revision {
		return m, fmt.Errorf("%w: %s is at revision %d, not %d", storage.ErrStale, m.Name, m.Revision, *revision)
	}
	return m, err
}

// storageUnused refuses while projects use the backend, whose row is locked: no project can take it up meanwhile.
func (t *tx) storageUnused(ctx context.Context, m storageModel) error {
	n, err := t.NewSelect().Table("projects").Where("storage_backend = ?", m.ID).Count(ctx)
	if err == nil && n > 0 {
		return &storage.InUse{Name: m.Name, Projects: int(n)}
	}
	return err
}

// StorageProjects returns the number of projects that use each backend; those without any are absent.
func (db *DB) StorageProjects(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		StorageBackend string
		N              int
	}
	err := db.ro.NewSelect().Table("projects").Column("storage_backend").ColumnExpr("count(*) AS n").
		Where("storage_backend IS NOT NULL").Group("storage_backend").Scan(ctx, &rows)
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.StorageBackend] = r.N
	}
	return counts, err
}

// DefaultStorage returns the id of the default backend; empty: none is set.
func (db *DB) DefaultStorage(ctx context.Context) (string, error) {
	return db.Setting(ctx, settingDefaultStorage)
}

// SetDefaultStorage sets the default backend; an empty id: none. An unknown one is storage.ErrNotFound.
func (db *DB) SetDefaultStorage(ctx context.Context, id string) error {
	return db.write(ctx, "set-default-storage", func(t *tx) error {
		e := event.Event{Kind: event.StorageChanged, Message: "There is no default storage backend any more"}
		if id != "" {
			m, err := t.storageForUpdate(ctx, id, nil)
			if err != nil {
				return err
			}
			e.Message, e.Data = "Storage backend "+m.Name+" is the default now", []byte(toJSON(map[string]string{"storage": id}))
		}
		if before, err := setting(ctx, t, settingDefaultStorage); err != nil || before == id {
			return err
		}
		t.emit(ctx, e)
		return t.setSetting(ctx, settingDefaultStorage, id)
	})
}
