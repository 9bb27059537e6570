package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

type decisionModel struct {
	bun.BaseModel `bun:"table:decisions,alias:d"`

	ID         string `bun:",pk"`
	AttemptID  string
	At         int64
	Outcome    string
	Rule       string
	ClusterID  string
	Plugin     string
	ReasonCode string
	Reason     string
	Asked      string
	Candidates string
}

func (m decisionModel) decision() placement.Decision {
	d := placement.Decision{
		ID: m.ID, AttemptID: m.AttemptID, At: timeOf(m.At), Outcome: placement.Outcome(m.Outcome), Rule: placement.Rule(m.Rule),
		ClusterID: m.ClusterID, Plugin: m.Plugin, ReasonCode: m.ReasonCode, Reason: m.Reason,
	}
	fromJSON(m.Asked, &d.Asked)
	fromJSON(m.Candidates, &d.Candidates)
	return d
}

const insertDecision = "INSERT INTO decisions (id, attempt_id, at, outcome, rule, cluster_id, plugin, reason_code, reason, asked, candidates) " +
	"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

func (t *tx) insertDecision(ctx context.Context, d placement.Decision) error {
	if d.ID == "" {
		d.ID = newID()
	}
	if d.At.IsZero() {
		d.At = now()
	}
	_, err := t.exec(ctx, insertDecision, d.ID, d.AttemptID, micros(d.At), string(d.Outcome), string(d.Rule), d.ClusterID, d.Plugin,
		d.ReasonCode, text(d.Reason), toJSON(d.Asked), toJSON(d.Candidates))
	return err
}

// Decisions returns the decisions about an attempt, the oldest first.
func (db *DB) Decisions(ctx context.Context, attemptID string) ([]placement.Decision, error) {
	var rows []decisionModel
	if err := db.ro.NewSelect().Model(&rows).Where("d.attempt_id = ?", attemptID).Order("d.id").Scan(ctx); err != nil {
		return nil, err
	}
	all := make([]placement.Decision, len(rows))
	for i, m := range rows {
		all[i] = m.decision()
	}
	return all, nil
}
