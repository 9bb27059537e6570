package store

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// UseSecret notes that the Job of an attempt may name a Secret, before either exists.
func (db *DB) UseSecret(ctx context.Context, s storage.Secret, attemptID string) error {
	return db.write(ctx, "use-secret", func(t *tx) error {
		if _, err := t.exec(ctx, "INSERT INTO storage_secrets (id, cluster_id, namespace, name) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
			s.ID(), s.ClusterID, s.Namespace, s.Name); err != nil {
			return err
		}
		_, err := t.exec(ctx, "INSERT INTO storage_uses (secret_id, attempt_id) VALUES (?, ?) ON CONFLICT (secret_id, attempt_id) DO NOTHING", s.ID(), attemptID)
		if dangling(err) {
			return errAgain // it was forgotten between the two
		}
		return err
	})
}

// SecretUsed says whether an attempt that has not ended may name the Secret.
func (db *DB) SecretUsed(ctx context.Context, s storage.Secret) (bool, error) {
	var one int
	err := db.get(ctx, `SELECT 1 FROM storage_uses u JOIN attempts a ON a.id = u.attempt_id
		WHERE u.secret_id = ? AND a.ended_at IS NULL LIMIT 1`, []any{s.ID()}, &one)
	if noRows(err) {
		return false, nil
	}
	return err == nil, err
}

// SecretsOn returns the Secrets that may exist at a cluster.
func (db *DB) SecretsOn(ctx context.Context, clusterID string) ([]storage.Secret, error) {
	var all []storage.Secret
	err := db.ro.NewSelect().Table("storage_secrets").Column("cluster_id", "namespace", "name").
		Where("cluster_id = ?", clusterID).Order("id").Scan(ctx, &all)
	return all, err
}

// SecretClusters returns the clusters that SecretsOn has Secrets of.
func (db *DB) SecretClusters(ctx context.Context) (map[string]bool, error) {
	var ids []string
	err := db.ro.NewSelect().Table("storage_secrets").Distinct().Column("cluster_id").Scan(ctx, &ids)
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out, err
}

// EndSecretUses drops what is noted of attempts that have ended.
func (db *DB) EndSecretUses(ctx context.Context, s storage.Secret) error {
	var one int
	err := db.get(ctx, `SELECT 1 FROM storage_uses u JOIN attempts a ON a.id = u.attempt_id
		WHERE u.secret_id = ? AND a.ended_at IS NOT NULL LIMIT 1`, []any{s.ID()}, &one)
	if noRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return db.write(ctx, "end-secret-uses", func(t *tx) error {
		_, err := t.exec(ctx, `DELETE FROM storage_uses WHERE secret_id = ? AND attempt_id IN
			(SELECT u.attempt_id FROM storage_uses u JOIN attempts a ON a.id = u.attempt_id WHERE u.secret_id = ? AND a.ended_at IS NOT NULL)`, s.ID(), s.ID())
		return err
	})
}

// ForgetSecret drops a Secret that is gone from its cluster, unless an attempt has taken it up again.
func (db *DB) ForgetSecret(ctx context.Context, s storage.Secret) error {
	err := db.write(ctx, "forget-secret", func(t *tx) error {
		_, err := t.exec(ctx, "DELETE FROM storage_secrets WHERE id = ? AND NOT EXISTS (SELECT 1 FROM storage_uses WHERE secret_id = ?)", s.ID(), s.ID())
		return err
	})
	if dangling(err) {
		return nil // taken up at this moment
	}
	return err
}
