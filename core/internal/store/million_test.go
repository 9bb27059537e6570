package store

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// crowd fills the database with n versions that have ended, but for a few: half of them are of one project and one
// cluster, and what is rare is among the oldest, where a list that is not read along its index finds it last. Every
// version has one attempt and one event; the newest has a thousand events more.
func crowd(t testing.TB, db *DB, n int) {
	t.Helper()
	id := "printf('%08x-0000-7000-8000-%012x', i, i)"
	numbers := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
	series := func(q string) string { return strings.Replace(q, "SELECT", numbers+"SELECT", 1) + " FROM n" }
	if db.dialect == migrations.PostgreSQL {
		id = "lpad(to_hex(i), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(i), 12, '0')"
		series = func(q string) string { return q + " FROM generate_series(1, ?) AS n (i)" }
	}
	project := "CASE WHEN i <= 40 THEN 'project-rare' WHEN i % 2 = 0 THEN 'project-0' ELSE 'project-' || (i % 19) END"
	cluster := "CASE WHEN i <= 2000 AND i % 20 = 0 THEN 'cluster-rare' WHEN i % 4 < 2 THEN 'cluster-0' ELSE 'cluster-' || (i % 9) END"
	state := "CASE WHEN i <= 4000 AND i % 40 = 0 THEN 'running' WHEN i % 10 = 3 THEN 'failed' ELSE 'succeeded' END"
	process := "CASE WHEN i <= 40 THEN 'process-rare' WHEN i % 2 = 0 THEN 'process-0-' || (i % 100) ELSE 'process-' || (i % 19) END"
	exec := func(q string, args ...any) {
		t.Helper()
		// The store's own connections: the pool of SQLite's readers cannot write.
		if _, err := db.rw.Exec(q, args...); err != nil {
			t.Fatal(err)
		}
	}
	if db.dialect == migrations.SQLite {
		exec("PRAGMA cache_size = -500000") // of the writer alone: a million rows and their indexes at once
	}
	for _, name := range append(numbered("project-", 19), "project-rare") {
		exec("INSERT INTO projects (id, name, created_at, updated_at, revision) VALUES (?, ?, 1, 1, 1)", name, name)
	}
	for _, name := range append(numbered("cluster-", 9), "cluster-rare") {
		exec("INSERT INTO clusters (id, name, type, provider_config, active, provisioning, observed, created_at, updated_at, revision, config_revision) "+
			"SELECT ?, ?, type, provider_config, active, provisioning, observed, 1, 1, 1, 1 FROM clusters WHERE id LIKE 'default-cluster%'", name, name)
	}
	addProcess := func(name, project string) {
		exec("INSERT INTO processes (id, project_id, name, type, created_by, created_at, last_version) VALUES (?, ?, ?, '', 'u', 1, 1)", name, project, name)
	}
	addProcess("process-rare", "project-rare")
	for _, p := range numbered("", 19) {
		addProcess("process-"+p, "project-"+p)
	}
	for i := 0; i < 100; i += 2 {
		addProcess("process-0-"+strconv.Itoa(i), "project-0")
	}
	spec := `'{"image":"registry.example.com/team/train:1","command":["python","train.py"],"args":["--epochs","10"],"env":[{"name":"A","value":"b"}],"limits":{"memory":"16Gi"},"retries":0}'`
	exec(series("INSERT INTO process_versions (id, process_id, project_id, number, spec, submitted_by, body_hash, attempt_id, state, cluster_id, created_at) "+
		"SELECT "+id+", "+process+", "+project+", i, "+spec+", 'u', 'h', "+id+", "+state+", "+cluster+", i"), n)
	exec(series("INSERT INTO attempts (id, version_id, process_id, project_id, number, state, cluster_id, next_try_at, created_at, updated_at, ended_at, logs_stored, revision) "+
		"SELECT "+id+", "+id+", "+process+", "+project+", 1, "+state+", "+cluster+", 1, 1, 1, CASE WHEN i <= 4000 AND i % 40 = 0 THEN NULL ELSE i END, TRUE, 1"), n)
	exec(series("INSERT INTO events (seq, at, kind, project_id, version_id, actor, state, message) SELECT i, i, 'submitted', "+project+", "+id+", 'u', 'placing', 'Submitted'"), n)
	exec(series("INSERT INTO events (seq, at, kind, project_id, version_id, actor, state, message) SELECT i + "+strconv.Itoa(n)+
		", i, 'reason', 'project-0', '"+crowdID(n)+"', 'system', 'queued', 'No node takes the pod.'"), 1000)
	exec("UPDATE event_counter SET seq = ?", n+1000)
	exec("ANALYZE")
}

func crowdID(i int) string { return fmt.Sprintf("%08x-0000-7000-8000-%012x", i, i) }

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, prefix+strconv.Itoa(i))
	}
	return names
}

var crowdLists = []struct {
	name string
	VersionFilter
}{
	{"all", VersionFilter{}},
	{"project", VersionFilter{ProjectID: "project-0"}},
	{"rare project", VersionFilter{ProjectID: "project-rare"}},
	{"state", VersionFilter{State: process.Succeeded}},
	{"rare state", VersionFilter{State: process.Running}},
	{"cluster", VersionFilter{ClusterID: "cluster-0"}},
	{"rare cluster", VersionFilter{ClusterID: "cluster-rare"}},
	{"project, state", VersionFilter{ProjectID: "project-0", State: process.Failed}},
	{"project, rare state", VersionFilter{ProjectID: "project-0", State: process.Running}},
	{"project, cluster", VersionFilter{ProjectID: "project-0", ClusterID: "cluster-0"}},
	{"project, rare cluster", VersionFilter{ProjectID: "project-0", ClusterID: "cluster-rare"}},
	{"cluster, rare state", VersionFilter{ClusterID: "cluster-0", State: process.Running}},
	{"project, cluster, state", VersionFilter{ProjectID: "project-0", ClusterID: "cluster-0", State: process.Succeeded}},
	{"project, cluster, rare state", VersionFilter{ProjectID: "project-0", ClusterID: "cluster-0", State: process.Running}},
}

// BenchmarkVersions reads first pages and deep ones of every list, and the timeline of one version, while there are a
// million versions (NAGELFLUH_BENCH_VERSIONS says how many). The aim is 50 ms for 95 in 100.
func BenchmarkVersions(b *testing.B) {
	count := 1_000_000
	if text := os.Getenv("NAGELFLUH_BENCH_VERSIONS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		b.Run(string(d), func(b *testing.B) {
			db := open(b, newURL(b, d))
			crowd(b, db, count)
			took := map[string][]time.Duration{}
			measure := func(name string, read func() (int, error)) {
				began := time.Now()
				n, err := read()
				took[name] = append(took[name], time.Since(began))
				if err != nil || n == 0 {
					b.Fatalf("%s: %d rows, %v", name, n, err)
				}
			}
			for b.Loop() {
				for _, l := range crowdLists {
					for _, depth := range []struct {
						name   string
						cursor string
					}{{"first page", ""}, {"deep page", crowdID(count / 10)}} {
						f := l.VersionFilter
						f.Limit, f.Cursor = 50, depth.cursor
						measure(depth.name+", "+l.name, func() (int, error) {
							vs, _, err := db.Versions(b.Context(), f)
							return len(vs), err
						})
					}
				}
				measure("timeline", func() (int, error) {
					es, err := db.Events(b.Context(), EventFilter{VersionID: crowdID(count), After: int64(count + 500), Limit: 50})
					return len(es), err
				})
			}
			var worst time.Duration
			for name, all := range took {
				slices.Sort(all)
				p95 := all[len(all)*95/100]
				worst = max(worst, p95)
				b.Logf("p95 %8.2f ms  %s", float64(p95.Microseconds())/1000, name)
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "p95-ms")
			b.ReportMetric(float64(count), "versions")
			b.ReportMetric(float64(len(took)), "lists")
		})
	}
}

// Every list shows every version that was there at its begin exactly once while others are inserted and change.
func TestListsWhileVersionsAreInserted(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		const there = 4000
		crowd(t, db, there)
		done := make(chan struct{})
		var writers, readers sync.WaitGroup
		for range 2 {
			writers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					in := newVersion("more")
					if _, _, err := db.Submit(t.Context(), "project-0", []process.NewVersion{in}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for _, l := range crowdLists {
			readers.Go(func() {
				var want int
				count := db.ro.NewSelect().Table("process_versions").ColumnExpr("count(*)").Where("id <= ?", crowdID(there))
				for column, value := range map[string]string{"project_id": l.ProjectID, "state": string(l.State), "cluster_id": l.ClusterID} {
					if value != "" {
						count.Where(column+" = ?", value)
					}
				}
				if err := count.Scan(t.Context(), &want); err != nil || want == 0 {
					t.Errorf("%s: %d versions, %v", l.name, want, err)
					return
				}
				seen := map[string]bool{}
				old, f := 0, l.VersionFilter
				f.Limit = max(1, want/9)
				for last := "\xff"; ; {
					page, next, err := db.Versions(t.Context(), f)
					if err != nil {
						t.Error(err)
						return
					}
					for _, v := range page {
						if seen[v.ID] || v.ID >= last {
							t.Errorf("%s: %s comes twice or out of order", l.name, v.ID)
						}
						last, seen[v.ID] = v.ID, true
						if v.ID <= crowdID(there) {
							old++
						}
					}
					if f.Cursor = next; next == "" {
						break
					}
				}
				if old != want {
					t.Errorf("%s: %d versions of %d", l.name, old, want)
				}
			})
		}
		readers.Wait()
		close(done)
		writers.Wait()
	})
}
