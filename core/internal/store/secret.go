package store

import (
	"context"
	"errors"
	"strings"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// Sealer encrypts provider configs and the credentials of storage backends. What it makes is bound to the place and opens nowhere else.
type Sealer interface {
	Seal(place string, plain []byte) (string, error)
	Open(place, sealed string) ([]byte, error)
	Same(place, sealed string, plain []byte) bool
}

// noConfig holds nothing secret and is stored as it is.
const noConfig = "{}"

// These must never change: what is sealed is bound to them.
const (
	configPlaces      = "clusters.provider_config of "
	credentialsPlaces = "storage_backends.credentials of "
)

func configPlace(clusterID string) string { return configPlaces + clusterID }

func credentialsPlace(backendID string) string { return credentialsPlaces + backendID }

var errNoSealer = errors.New("store: this database was opened without a keyset, so it takes no secrets")

// configOf returns a row's provider config; nil: it cannot be decrypted.
func (db *DB) configOf(m clusterModel) []byte {
	if m.ProviderConfig == noConfig {
		return []byte(noConfig)
	}
	if db.sealer == nil {
		return nil
	}
	plain, err := db.sealer.Open(configPlace(m.ID), m.ProviderConfig)
	if err != nil {
		return nil
	}
	return plain
}

// sealConfig returns what is to be stored for a config; before is what is stored, which stays when it means the same. A
// nil config is none, or one that could not be read: that stays too.
func (t *tx) sealConfig(ctx context.Context, id string, config []byte, before string) (string, error) {
	switch {
	case config == nil && before != "":
		return before, nil
	case len(config) == 0 || string(config) == noConfig:
		return noConfig, nil
	case t.db.sealer == nil:
		return "", errNoSealer
	case before != "" && before != noConfig && t.db.sealer.Same(configPlace(id), before, config):
		return before, nil
	}
	return t.seal(ctx, func() (string, error) { return t.db.sealer.Seal(configPlace(id), config) })
}

// credentialsOf returns a row's credentials; none: they cannot be decrypted.
func (db *DB) credentialsOf(m storageModel) storage.Credentials {
	if db.sealer == nil {
		return storage.Credentials{}
	}
	plain, err := db.sealer.Open(credentialsPlace(m.ID), m.Credentials)
	if err != nil {
		return storage.Credentials{}
	}
	c, err := storage.Decode(plain)
	if err != nil {
		return storage.Credentials{}
	}
	return c
}

// sealCredentials returns what is to be stored for credentials; before is what is stored, which stays when it means the
// same, or when there are none in its place. The keys are held.
func (t *tx) sealCredentials(id string, c storage.Credentials, before string) (string, error) {
	plain := c.Encode()
	switch {
	case t.db.sealer == nil:
		return "", errNoSealer
	case before != "" && (c == storage.Credentials{} || t.db.sealer.Same(credentialsPlace(id), before, plain)):
		return before, nil
	}
	return t.db.sealer.Seal(credentialsPlace(id), plain)
}

// holdKeys keeps every key from being removed until the transaction ends. On SQLite the only writer is here.
func (t *tx) holdKeys(ctx context.Context) error {
	if !t.db.rowLocks() {
		return nil
	}
	_, err := t.exec(ctx, "LOCK TABLE clusters IN ROW EXCLUSIVE MODE")
	return err
}

// seal calls f while no key is removed.
func (t *tx) seal(ctx context.Context, f func() (string, error)) (string, error) {
	if err := t.holdKeys(ctx); err != nil {
		return "", err
	}
	return f()
}

var _ secret.Store = (*DB)(nil)

// Secrets returns every provider config, but for those that are empty, and the credentials of every storage backend, as
// they are stored.
func (db *DB) Secrets(ctx context.Context) ([]secret.Text, error) { return texts(ctx, db.ro) }

func texts(ctx context.Context, db bun.IDB) ([]secret.Text, error) {
	var clusters []clusterModel
	if err := db.NewSelect().Model(&clusters).Column("id", "provider_config").Where("c.provider_config <> ?", noConfig).Order("c.id").Scan(ctx); err != nil {
		return nil, err
	}
	var backends []storageModel
	if err := db.NewSelect().Model(&backends).Column("id", "credentials").Order("sb.id").Scan(ctx); err != nil {
		return nil, err
	}
	out := make([]secret.Text, 0, len(clusters)+len(backends))
	for _, m := range clusters {
		out = append(out, secret.Text{Of: "cluster " + m.ID, Place: configPlace(m.ID), Stored: m.ProviderConfig})
	}
	for _, m := range backends {
		out = append(out, secret.Text{Of: "storage backend " + m.ID, Place: credentialsPlace(m.ID), Stored: m.Credentials})
	}
	return out, nil
}

// Reseal puts what seal returns in the place of a stored text, unless that has changed: then it says false. It is no
// change of the row: the text means the same.
func (db *DB) Reseal(ctx context.Context, old secret.Text, seal func() (string, error)) (done bool, err error) {
	query, id := "UPDATE clusters SET provider_config = ? WHERE id = ? AND provider_config = ?", strings.TrimPrefix(old.Place, configPlaces)
	if backend, is := strings.CutPrefix(old.Place, credentialsPlaces); is {
		query, id = "UPDATE storage_backends SET credentials = ? WHERE id = ? AND credentials = ?", backend
	}
	err = db.write(ctx, "reseal", func(t *tx) error {
		next, err := t.seal(ctx, seal)
		if err != nil {
			return err
		}
		res, err := t.exec(ctx, query, next, id, old.Stored)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		done = n == 1
		return err
	})
	return done, err
}

// ChangeKeys calls change while nobody seals, in this process or another, and then stores the fingerprints it returns.
// The change writes a local file, so it is the one function that is handed in here and is not pure.
func (db *DB) ChangeKeys(ctx context.Context, change func([]secret.Text) (fingerprints []string, err error)) error {
	return db.write(ctx, "change-keys", func(t *tx) error {
		if db.rowLocks() {
			// Also keeps off those that have read a row in order to write it.
			if _, err := t.exec(ctx, "LOCK TABLE clusters IN EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		all, err := texts(ctx, t)
		if err != nil {
			return err
		}
		fingerprints, err := change(all)
		if err != nil {
			return err
		}
		return t.setSetting(ctx, settingKeyset, strings.Join(fingerprints, " "))
	})
}

// Fingerprints are those of the keys that the database relies on; none: it was never encrypted.
func (db *DB) Fingerprints(ctx context.Context) ([]string, error) {
	s, err := db.Setting(ctx, settingKeyset)
	return strings.Fields(s), err
}

// Scrub rewrites what holds provider configs, so that nothing that was overwritten or deleted is left in the database's
// files. On SQLite that is the whole file.
func (db *DB) Scrub(ctx context.Context) error {
	if db.dialect == migrations.PostgreSQL {
		_, err := db.sql.ExecContext(ctx, "VACUUM FULL clusters")
		return err
	}
	vacuum := func() error {
		_, err := db.sql.ExecContext(ctx, "VACUUM")
		return err
	}
	if err := whileBusy(ctx, vacuum); err != nil {
		return err
	}
	var busy, log, done int
	if err := db.sql.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &done); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("store: another program reads the database, so its -wal file cannot be emptied; stop that and start again")
	}
	return nil
}
