package store

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// The two schemas are equal: tables, columns in order, nullability, kinds of types, keys and indexes.
func TestSchemasAreEqual(t *testing.T) {
	lite := open(t, newURL(t, migrations.SQLite))
	pg := open(t, newURL(t, migrations.PostgreSQL))

	columns := map[migrations.Dialect]string{
		migrations.SQLite: `SELECT m.name || '.' || c.name || CASE c."notnull" WHEN 0 THEN ' null' ELSE '' END || ' ' || lower(c.type)
			FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid`,
		migrations.PostgreSQL: `SELECT table_name || '.' || column_name || CASE is_nullable WHEN 'YES' THEN ' null' ELSE '' END || ' ' || data_type
			FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position`,
	}
	same := strings.NewReplacer(" bigint", " integer", " boolean", " integer")
	if d := cmp.Diff(lines(t, lite, columns, same), lines(t, pg, columns, same)); d != "" {
		t.Errorf("columns: -sqlite +postgres\n%s", d)
	}

	keys := map[migrations.Dialect]string{
		migrations.SQLite: `SELECT m.name || '(' || group_concat(c.name ORDER BY c.pk) || ')' FROM sqlite_master m, pragma_table_info(m.name) c
			WHERE m.type = 'table' AND c.pk > 0 GROUP BY m.name`,
		migrations.PostgreSQL: `SELECT c.conrelid::regclass || '(' || string_agg(a.attname, ',' ORDER BY k.n) || ')'
			FROM pg_constraint c, unnest(c.conkey) WITH ORDINALITY k(attnum, n), pg_attribute a
			WHERE c.contype = 'p' AND c.connamespace = current_schema()::regnamespace AND a.attrelid = c.conrelid AND a.attnum = k.attnum GROUP BY c.conrelid`,
	}
	if d := cmp.Diff(lines(t, lite, keys, nil), lines(t, pg, keys, nil)); d != "" {
		t.Errorf("primary keys: -sqlite +postgres\n%s", d)
	}

	references := map[migrations.Dialect]string{
		migrations.SQLite: `SELECT m.name || '.' || f."from" || ' to ' || f."table" || '.' || f."to" FROM sqlite_master m, pragma_foreign_key_list(m.name) f
			WHERE m.type = 'table'`,
		migrations.PostgreSQL: `SELECT c.conrelid::regclass || '.' || a.attname || ' to ' || c.confrelid::regclass || '.' || b.attname
			FROM pg_constraint c, pg_attribute a, pg_attribute b WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace
			AND a.attrelid = c.conrelid AND a.attnum = c.conkey[1] AND b.attrelid = c.confrelid AND b.attnum = c.confkey[1]`,
	}
	if d := cmp.Diff(lines(t, lite, references, nil), lines(t, pg, references, nil)); d != "" {
		t.Errorf("foreign keys: -sqlite +postgres\n%s", d)
	}

	// Indexes are compared by their text, conditions included; PostgreSQL writes it with casts and brackets.
	indexes := map[migrations.Dialect]string{
		migrations.SQLite:     `SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`,
		migrations.PostgreSQL: `SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND indexname NOT LIKE '%\_pkey'`,
	}
	plain := strings.NewReplacer(" USING btree", "", "::text", "", "public.", "", "(", " ", ")", " ")
	if d := cmp.Diff(lines(t, lite, indexes, plain), lines(t, pg, indexes, plain)); d != "" {
		t.Errorf("indexes: -sqlite +postgres\n%s", d)
	}
}

var spaces = regexp.MustCompile(`\s+`)

func lines(t *testing.T, db *DB, query map[migrations.Dialect]string, r *strings.Replacer) []string {
	t.Helper()
	rows, err := db.sql.Query(query[db.dialect])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		if r != nil {
			s = r.Replace(s)
		}
		all = append(all, strings.TrimSpace(spaces.ReplaceAllString(strings.ToLower(s), " ")))
	}
	if err := rows.Err(); err != nil || len(all) == 0 {
		t.Fatal("nothing to compare: ", err)
	}
	slices.Sort(all)
	return all
}

// Every list is read along an index, in its order: nothing is sorted, no table is scanned.
func TestQueryPlans(t *testing.T) {
	db := open(t, newURL(t, migrations.SQLite))
	plan := &planner{t: t, db: db.sql}
	db.ro = db.ro.WithQueryHook(plan)
	ctx := t.Context()
	for name, f := range map[string]VersionFilter{
		"all": {}, "project": {ProjectID: "x"}, "project and state": {ProjectID: "x", State: process.Running}, "process": {ProcessID: "x"},
		"state": {State: process.Running}, "cluster": {ClusterID: "x"}, "cluster and state": {ClusterID: "x", State: process.Running},
		"project and cluster":        {ProjectID: "x", ClusterID: "x"},
		"project, cluster and state": {ProjectID: "x", ClusterID: "x", State: process.Running},
		"process and state":          {ProcessID: "x", State: process.Running},
	} {
		for _, cursor := range []string{"", "y"} {
			f.Cursor = cursor
			plan.name, plan.whole = "versions by "+name, name == "all"
			_, _, _ = db.Versions(ctx, f)
		}
	}
	plan.name, plan.whole = "processes", true
	_, _, _ = db.Processes(ctx, "", "", 0)
	_, _, _ = db.Processes(ctx, "x", "y", 0)
	plan.name = "due"
	_, _ = db.PlacingDue(ctx, now(), 10)
	plan.name, plan.whole = "live", false
	_, _ = db.LiveAttempts(ctx, "x")
	plan.name = "logs"
	_, _ = db.LogsPending(ctx, "x")
	plan.name = "attempts"
	_, _ = db.Attempts(ctx, "x")
	plan.name = "events"
	_, _ = db.Events(ctx, EventFilter{After: 5})
	_, _ = db.Events(ctx, EventFilter{After: 5, ProjectID: "x"})
	_, _ = db.Events(ctx, EventFilter{After: 5, VersionID: "x"})
	plan.name = "decisions"
	_, _ = db.Decisions(ctx, "x")
	plan.name = "history"
	_, _ = db.ClusterHistory(ctx, "x")
	plan.name = "counts"
	_, _ = db.LiveCounts(ctx)
	if plan.queries < 20 {
		t.Errorf("only %d queries were looked at", plan.queries)
	}
}

func (p *planner) explain(query string) {
	rows, err := p.db.Query("EXPLAIN QUERY PLAN " + query)
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id, parent, unused int
		var detail sql.NullString
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, detail.String)
	}
	p.queries++
	text := strings.Join(all, "; ")
	// "SCAN x USING INDEX" walks an index in order until the page is full: right for a list of everything, and for what
	// is due, whose index holds nothing else.
	scans := regexp.MustCompile(`SCAN (\w+)(;|$)`).MatchString(text) || strings.Contains(text, "SCAN") && !p.whole
	if strings.Contains(text, "TEMP B-TREE") || scans {
		p.t.Errorf("%s: %s\n%s", p.name, text, query)
	}
	fmt.Fprintf(p.t.Output(), "%s: %s\n", p.name, text)
}
