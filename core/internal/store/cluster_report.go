package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// SetLastTest keeps the report of a test of a cluster's stored config, in place of the one before. It is no change of the
// cluster, and no event. A cluster that was removed meanwhile is cluster.ErrNotFound.
func (db *DB) SetLastTest(ctx context.Context, id string, configRevision int64, r cluster.Report) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the report of a connection test: %w", err)
	}
	return db.write(ctx, "set-last-test", func(t *tx) error {
		if err := t.holdCluster(ctx, id); err != nil {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO cluster_tests (cluster_id, config_revision, report) VALUES (?, ?, ?)
			ON CONFLICT (cluster_id) DO UPDATE SET config_revision = excluded.config_revision, report = excluded.report`,
			id, configRevision, string(raw))
		return err
	})
}

// LastTest returns the report of the last test of that revision of a cluster's config; nil: there was none.
func (db *DB) LastTest(ctx context.Context, id string, configRevision int64) (*cluster.Report, error) {
	var raw string
	err := db.get(ctx, "SELECT report FROM cluster_tests WHERE cluster_id = ? AND config_revision = ?", []any{id, configRevision}, &raw)
	if noRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &cluster.Report{}
	if err := json.Unmarshal([]byte(raw), r); err != nil {
		return nil, fmt.Errorf("read the last connection test of cluster %s: %w", id, err)
	}
	return r, nil
}

// LiveStatesOn returns the number of attempts that are pinned to the cluster and have not ended, by state. States without
// any are absent.
func (db *DB) LiveStatesOn(ctx context.Context, id string) (map[string]int32, error) {
	var rows []struct {
		State string
		N     int32
	}
	err := db.ro.NewSelect().Table("attempts").Column("state").ColumnExpr("count(*) AS n").Where("cluster_id = ?", id).
		Where("ended_at IS NULL").Group("state").Scan(ctx, &rows)
	counts := make(map[string]int32, len(rows))
	for _, r := range rows {
		counts[r.State] = r.N
	}
	return counts, err
}
