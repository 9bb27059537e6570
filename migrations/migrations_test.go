package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"
)

// The same tests on PostgreSQL, as far as they need no other files, are in core's store package.

func openDB(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func sqlFiles(kv ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		m["sqlite/"+kv[i]+".up.sql"] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return m
}

const (
	first  = "20260101000000_first"
	second = "20260102000000_second"
	third  = "20260103000000_third"
)

func TestUpAppliesWhatLacks(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	one := sqlFiles(first, "-- a comment;\nCREATE TABLE a (x TEXT\n);\nINSERT INTO a VALUES ('1;2');\n")
	two := sqlFiles(first, "-- a comment;\nCREATE TABLE a (x TEXT\n);\nINSERT INTO a VALUES ('1;2');\n", second, "CREATE TABLE b (x TEXT)")
	if s, err := status(ctx, db, SQLite, two); err != nil || len(s) != 2 || !s[0].AppliedAt.IsZero() {
		t.Errorf("of an empty database: %+v %v", s, err)
	}
	for _, step := range []struct {
		files fs.FS
		want  []string
	}{{one, []string{first}}, {one, nil}, {two, []string{second}}} {
		applied, err := up(ctx, db, SQLite, step.files)
		if err != nil || !slices.Equal(applied, step.want) {
			t.Errorf("applied %v, want %v: %v", applied, step.want, err)
		}
	}
	if s, err := status(ctx, db, SQLite, two); err != nil || len(s) != 2 || s[0].AppliedAt.IsZero() || s[1].AppliedAt.IsZero() || s[1].Drifted {
		t.Errorf("%+v %v", s, err)
	}

	t.Run("newer", func(t *testing.T) {
		if _, err := up(ctx, db, SQLite, one); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), second) || !strings.Contains(err.Error(), first) {
			t.Error(err)
		}
		if s, _ := status(ctx, db, SQLite, one); len(s) != 2 || !s[1].Unknown {
			t.Errorf("%+v", s)
		}
	})
	t.Run("drift", func(t *testing.T) {
		changed := sqlFiles(first, "CREATE TABLE other (x TEXT);", second, "CREATE TABLE b (x TEXT)", third, "CREATE TABLE c (x TEXT)")
		if _, err := up(ctx, db, SQLite, changed); !errors.Is(err, ErrDrift) || !strings.Contains(err.Error(), first) {
			t.Error(err)
		}
		if s, _ := status(ctx, db, SQLite, changed); len(s) != 3 || !s[0].Drifted || !s[2].AppliedAt.IsZero() {
			t.Errorf("something was applied: %+v", s)
		}
	})
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	bad := sqlFiles(first, "CREATE TABLE a (x TEXT);", second, "CREATE TABLE b (x TEXT);\nINSERT INTO none VALUES (1);", third, "CREATE TABLE c (x TEXT);")
	applied, err := up(ctx, db, SQLite, bad)
	if err == nil || !strings.Contains(err.Error(), second+": statement 2") || !slices.Equal(applied, []string{first}) {
		t.Error(applied, err)
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_master WHERE name IN ('b', 'c')").Scan(&n); err != nil || n != 0 {
		t.Error("half of it is left:", n, err)
	}
	good := sqlFiles(first, "CREATE TABLE a (x TEXT);", second, "CREATE TABLE b (x TEXT);", third, "CREATE TABLE c (x TEXT);")
	if applied, err := up(ctx, db, SQLite, good); err != nil || !slices.Equal(applied, []string{second, third}) {
		t.Error("after the file was corrected:", applied, err)
	}
}

func TestServersDoNotRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	files := sqlFiles(first, "CREATE TABLE a (x TEXT);", second, "CREATE TABLE b (x TEXT);", third, "CREATE TABLE c (x TEXT);")
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all []string
	)
	for range 8 {
		wg.Go(func() {
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			applied, err := up(context.Background(), db, SQLite, files)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, applied...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if !slices.Equal(all, []string{first, second, third}) {
		t.Error(all)
	}
}

func TestFiles(t *testing.T) {
	lite, err := List(SQLite)
	if err != nil || len(lite) == 0 {
		t.Fatal(err)
	}
	pg, err := List(PostgreSQL)
	if err != nil {
		t.Fatal(err)
	}
	names := func(all []Migration) (out []string) {
		for _, m := range all {
			out = append(out, m.Name)
		}
		return out
	}
	if !slices.Equal(names(lite), names(pg)) {
		t.Errorf("the folders differ: %v and %v", names(lite), names(pg))
	}
	if _, err := List("mysql"); err == nil {
		t.Error("an unknown dialect")
	}
	if _, err := list(sqlFiles("1_short", ""), SQLite); err == nil {
		t.Error("a name without a time")
	}
}
