package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// Keys of settings.
const (
	SettingDefaultCluster = "default_cluster" // id of the default cluster; empty: none
	SettingInstallation   = "installation_id" // names this installation at the clusters; made at the first start

	settingDefaultStorage = "default_storage" // id of the default storage backend; empty: none

	settingKeyset = "keyset" // fingerprints of the keys that the provider configs are sealed with
)

type settingModel struct {
	bun.BaseModel `bun:"table:settings,alias:s"`

	Key   string `bun:",pk"`
	Value string
}

// Setting returns a value; empty: it was never set.
func (db *DB) Setting(ctx context.Context, key string) (string, error) {
	return setting(ctx, db.ro, key)
}

func setting(ctx context.Context, q bun.IDB, key string) (string, error) {
	var m settingModel
	err := q.NewSelect().Model(&m).Where("s.key = ?", key).Scan(ctx)
	if noRows(err) {
		return "", nil
	}
	return m.Value, err
}

// SetSetting stores a value. A change of the default cluster is an event, for attempts may wait for it.
func (db *DB) SetSetting(ctx context.Context, key, value string) error {
	return db.write(ctx, "set-setting", func(t *tx) error {
		if key == SettingDefaultCluster {
			if err := t.defaultChanged(ctx, value); err != nil {
				return err
			}
		}
		return t.setSetting(ctx, key, value)
	})
}

func (t *tx) setSetting(ctx context.Context, key, value string) error {
	_, err := t.NewInsert().Model(&settingModel{Key: key, Value: value}).
		On("CONFLICT (key) DO UPDATE").Set("value = excluded.value").Exec(ctx)
	return err
}

// EnsureSetting stores a value unless there is one, and returns the one that is stored then. Of several callers at once
// all get the same.
func (db *DB) EnsureSetting(ctx context.Context, key, value string) (string, error) {
	var out string
	err := db.write(ctx, "ensure-setting", func(t *tx) (err error) {
		if _, err := t.NewInsert().Model(&settingModel{Key: key, Value: value}).On("CONFLICT (key) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		out, err = setting(ctx, t, key)
		return err
	})
	return out, err
}

// DefaultCluster returns the id of the default cluster; empty: none is set.
func (db *DB) DefaultCluster(ctx context.Context) (string, error) {
	return recall(&db.memory, &db.memory.byDefault, func() (string, error) { return db.Setting(ctx, SettingDefaultCluster) })
}

func (t *tx) defaultChanged(ctx context.Context, id string) error {
	e := event.Event{Kind: event.ClusterChanged, ClusterID: id, Message: "There is no default cluster any more"}
	if id != "" {
		if err := t.holdCluster(ctx, id); err != nil {
			return err
		}
		e.Message = "This is the default cluster now"
	}
	t.emit(ctx, e)
	return nil
}
