package store

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
)

// planner is a hook that looks at the plan of every query of a connection pool.
type planner struct {
	t       *testing.T
	db      *sql.DB
	name    string
	whole   bool // the query is for everything that an index holds
	queries int
}

func (p *planner) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (p *planner) AfterQuery(_ context.Context, e *bun.QueryEvent) { p.explain(e.Query) }
