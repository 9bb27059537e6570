package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// historyKept is how many changes of health are kept of each cluster.
const historyKept = 200

type changeModel struct {
	bun.BaseModel `bun:"table:cluster_history,alias:h"`

	ID        string `bun:",pk"`
	ClusterID string
	At        int64
	Was       string
	Became    string
	Reason    string
	Message   string
}

// Observe stores what the health monitor saw. It is no change of the admin's: the revision stays, and so does what
// the cluster is known by when the monitor speaks of another one. A change of health or of its reason is an event and a line of the history.
func (db *DB) Observe(ctx context.Context, id string, o cluster.Observed) error {
	o.Message = text(o.Message)
	return db.write(ctx, "observe", func(t *tx) error {
		m, err := t.clusterForUpdate(ctx, id)
		if err != nil {
			return err
		}
		before := m.observed()
		after := o.After(before)
		if _, err := t.exec(ctx, "UPDATE clusters SET observed = ? WHERE id = ?", toJSON(after), id); err != nil {
			return err
		}
		if before.Health == after.Health && before.Reason == after.Reason {
			return nil
		}
		message := fmt.Sprintf("Cluster %s is %s", m.Name, after.Health)
		if after.Message != "" {
			message += ": " + after.Message
		}
		t.emit(ctx, event.Event{Kind: event.ClusterChanged, ClusterID: id, Actor: "system", Message: message, Data: []byte(toJSON(map[string]string{
			"from": string(before.Health), "to": string(after.Health), "reason": after.Reason,
		}))})
		return t.remember(ctx, changeModel{
			ID: newID(), ClusterID: id, At: micros(now()), Was: string(before.Health), Became: string(after.Health), Reason: after.Reason, Message: after.Message,
		})
	})
}

// remember adds a line to a cluster's history and drops those that are too many.
func (t *tx) remember(ctx context.Context, m changeModel) error {
	if _, err := t.NewInsert().Model(&m).Exec(ctx); err != nil {
		return err
	}
	_, err := t.exec(ctx, `DELETE FROM cluster_history WHERE cluster_id = ? AND id <= (
		SELECT id FROM cluster_history WHERE cluster_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?)`, m.ClusterID, m.ClusterID, historyKept)
	return err
}

// ClusterHistory returns how a cluster's health went, the newest change first; there are at most 200.
func (db *DB) ClusterHistory(ctx context.Context, id string) ([]cluster.Change, error) {
	var rows []changeModel
	if err := db.ro.NewSelect().Model(&rows).Where("h.cluster_id = ?", id).Order("h.id DESC").Limit(historyKept).Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]cluster.Change, len(rows))
	for i, m := range rows {
		all[i] = cluster.Change{At: timeOf(m.At), From: cluster.Health(m.Was), To: cluster.Health(m.Became), Reason: m.Reason, Message: m.Message}
	}
	return all, nil
}
