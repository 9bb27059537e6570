package main

import (
	"context"
	"fmt"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// versions: what a page of versions and of a timeline takes while a million of them are stored, by a benchmark of package
// store, which fills both databases with plain SQL.
func versions(ctx context.Context, b *bench) ([]row, error) {
	root, err := stack.Root()
	if err != nil {
		return nil, err
	}
	times := "-benchtime=200x"
	if b.quick {
		times = "-benchtime=20x"
	}
	got, err := benchmarks(ctx, b, root, "store", "Versions", times)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, db := range []struct{ key, name string }{{"sqlite", "SQLite"}, {"postgres", "PostgreSQL"}} {
		r := row{name: "(i) lists of versions, " + db.name, aim: "p95 ≤ 50 ms"}
		if f := got["Versions/"+db.key]; f == nil {
			r.result, r.aim = "not installed", ""
		} else {
			r.ours = fmt.Sprintf("%.0f versions, the slowest of %.0f lists", f["versions"], f["lists"])
			r.result, r.met = fmt.Sprintf("p95 %.1f ms", f["p95-ms"]), f["p95-ms"] <= 50
		}
		rows = append(rows, r)
	}
	return rows, nil
}
