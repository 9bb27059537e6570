package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
)

type userModel struct {
	bun.BaseModel `bun:"table:users,alias:u"`

	ID        string `bun:",pk"`
	Name      string
	Groups    string
	Admin     bool
	CreatedAt int64
}

func (m userModel) user() auth.User {
	u := auth.User{ID: m.ID, Name: m.Name, Admin: m.Admin, CreatedAt: timeOf(m.CreatedAt)}
	if m.Groups != "[]" {
		fromJSON(m.Groups, &u.Groups)
	}
	return u
}

// User returns one user by id, or auth.ErrNotFound.
func (db *DB) User(ctx context.Context, id string) (auth.User, error) {
	return db.user(ctx, "u.id", id)
}

// UserByName returns one user by name, or auth.ErrNotFound.
func (db *DB) UserByName(ctx context.Context, name string) (auth.User, error) {
	return db.user(ctx, "u.name", name)
}

func (db *DB) user(ctx context.Context, column, value string) (auth.User, error) {
	var m userModel
	err := db.ro.NewSelect().Model(&m).Where("? = ?", bun.Ident(column), value).Scan(ctx)
	if noRows(err) {
		return auth.User{}, fmt.Errorf("user %s: %w", value, auth.ErrNotFound)
	}
	return m.user(), err
}

// Users returns every user, by name.
func (db *DB) Users(ctx context.Context) ([]auth.User, error) {
	var rows []userModel
	if err := db.ro.NewSelect().Model(&rows).Order("u.name").Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]auth.User, len(rows))
	for i, m := range rows {
		all[i] = m.user()
	}
	return all, nil
}

// CreateUser stores a user and returns it as stored; an empty id is filled in. A name in use is auth.ErrNameUsed.
func (db *DB) CreateUser(ctx context.Context, u auth.User) (auth.User, error) {
	m := userModel{ID: cmp.Or(u.ID, newID()), Name: u.Name, Groups: "[]", Admin: u.Admin, CreatedAt: micros(now())}
	if len(u.Groups) > 0 {
		m.Groups = toJSON(u.Groups)
	}
	err := db.write(ctx, "create-user", func(t *tx) error {
		_, err := t.NewInsert().Model(&m).Exec(ctx)
		return nameUsed(err, auth.ErrNameUsed, u.Name)
	})
	return m.user(), err
}

type keyModel struct {
	bun.BaseModel `bun:"table:api_keys,alias:k"`

	ID         string `bun:",pk"`
	UserID     string
	Name       string
	Prefix     string
	SecretHash string
	CreatedAt  int64
	ExpiresAt  *int64
	RevokedAt  *int64
}

func (m keyModel) key() auth.APIKey {
	return auth.APIKey{
		ID: m.ID, UserID: m.UserID, Name: m.Name, Prefix: m.Prefix, SecretHash: m.SecretHash, CreatedAt: timeOf(m.CreatedAt),
		ExpiresAt: timeOrNil(m.ExpiresAt), RevokedAt: timeOrNil(m.RevokedAt),
	}
}

// CreateAPIKey stores a key and returns it as stored; an empty id is filled in. An unknown user is auth.ErrNotFound.
func (db *DB) CreateAPIKey(ctx context.Context, k auth.APIKey) (auth.APIKey, error) {
	m := keyModel{
		ID: cmp.Or(k.ID, newID()), UserID: k.UserID, Name: k.Name, Prefix: k.Prefix, SecretHash: k.SecretHash,
		CreatedAt: micros(now()), ExpiresAt: microsOrNull(k.ExpiresAt),
	}
	err := db.write(ctx, "create-api-key", func(t *tx) error {
		_, err := t.NewInsert().Model(&m).Exec(ctx)
		if dangling(err) {
			return fmt.Errorf("user %s: %w", k.UserID, auth.ErrNotFound)
		}
		return err
	})
	return m.key(), err
}

// APIKeyByPrefix returns the key with the prefix, also one that is revoked or expired, or auth.ErrNotFound.
func (db *DB) APIKeyByPrefix(ctx context.Context, prefix string) (auth.APIKey, error) {
	var m keyModel
	err := db.ro.NewSelect().Model(&m).Where("k.prefix = ?", prefix).Scan(ctx)
	if noRows(err) {
		return auth.APIKey{}, fmt.Errorf("API key %s: %w", prefix, auth.ErrNotFound)
	}
	return m.key(), err
}

// APIKeys returns the keys of a user, or of all for an empty id, the newest first.
func (db *DB) APIKeys(ctx context.Context, userID string) ([]auth.APIKey, error) {
	var rows []keyModel
	q := db.ro.NewSelect().Model(&rows).OrderExpr("k.id DESC")
	if userID != "" {
		q.Where("k.user_id = ?", userID)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]auth.APIKey, len(rows))
	for i, m := range rows {
		all[i] = m.key()
	}
	return all, nil
}

// RevokeAPIKey ends a key. Revoking twice keeps the first time. An unknown id is auth.ErrNotFound.
func (db *DB) RevokeAPIKey(ctx context.Context, id string, at time.Time) error {
	return db.write(ctx, "revoke-api-key", func(t *tx) error {
		result, err := t.NewUpdate().Model((*keyModel)(nil)).Set("revoked_at = coalesce(revoked_at, ?)", micros(at)).Where("id = ?", id).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return cmp.Or(err, fmt.Errorf("API key %s: %w", id, auth.ErrNotFound))
		}
		return nil
	})
}
