package store

import (
	"context"
	"fmt"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// ProcessByName returns the process of a name in a project, or process.ErrNotFound.
func (db *DB) ProcessByName(ctx context.Context, projectID, name string) (process.Process, error) {
	var m processModel
	err := db.ro.NewSelect().Model(&m).Where("project_id = ?", projectID).Where("name = ?", name).Scan(ctx)
	if noRows(err) {
		return process.Process{}, fmt.Errorf("process %q: %w", name, process.ErrNotFound)
	}
	return m.process(), err
}

// LiveStates returns the number of attempts that have not ended, by state. States without any are absent.
func (db *DB) LiveStates(ctx context.Context) (map[process.State]int64, error) {
	var rows []struct {
		State string
		N     int64
	}
	if err := db.ro.NewSelect().Table("attempts").Column("state").ColumnExpr("count(*) AS n").Where("ended_at IS NULL").
		Group("state").Scan(ctx, &rows); err != nil {
		return nil, err
	}
	out := make(map[process.State]int64, len(rows))
	for _, r := range rows {
		out[process.State(r.State)] = r.N
	}
	return out, nil
}

// Item is the index of the item in the call, for those who do not know this package.
func (e *KeyReusedError) Item() int { return e.Index }
