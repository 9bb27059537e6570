package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/migrations"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

// server is the PostgreSQL of this test run, started at first use unless the environment names one.
var server struct {
	sync.Once
	*postgres.Server
	dsn string
	err error
}

// box is the keyset of all databases of this test run.
var box *secret.Box

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "store-test-")
	if err != nil {
		panic(err)
	}
	box = secret.NewBox(filepath.Join(dir, "keyset.json"))
	code := m.Run()
	_ = os.RemoveAll(dir)
	if server.Server != nil {
		_ = server.Stop()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// each runs a test on a fresh database of both kinds.
func each(t *testing.T, f func(t *testing.T, db *DB)) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		t.Run(string(d), func(t *testing.T) { f(t, open(t, newURL(t, d))) })
	}
}

func newURL(t testing.TB, d migrations.Dialect) string {
	if d == migrations.SQLite {
		return "sqlite:" + filepath.Join(t.TempDir(), "nagelfluh.db")
	}
	server.Do(func() {
		if server.dsn = os.Getenv(postgres.EnvDSN); server.dsn != "" {
			return
		}
		if server.Server, server.err = postgres.Start(context.Background()); server.err == nil {
			server.dsn = server.DSN
		}
	})
	if server.err != nil {
		if errors.Is(server.err, postgres.ErrNotInstalled) && !postgres.Required() {
			t.Skip(server.err)
		}
		t.Fatal(server.err)
	}
	admin, err := sql.Open("pgx", server.dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := "test_" + strings.ReplaceAll(newID(), "-", "")
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		admin.Close()
	})
	u, err := url.Parse(server.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func open(t testing.TB, dbURL string) *DB {
	db, err := Open(context.Background(), Options{URL: dbURL, Server: true, Sealer: box})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(context.Background(), db); err != nil {
		t.Fatal(err)
	}
	if db.Replicated() {
		lead(t, db)
	}
	return db
}

// lead makes the server of db the leader; an earlier one is a leader no more, though it may not know.
func lead(t testing.TB, db *DB) (lease.Session, int64) {
	t.Helper()
	s := db.Lease(newID(), "http://"+t.Name(), time.Minute)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.sql.Exec("UPDATE leadership SET expires_at = 0"); err != nil {
		t.Fatal(err)
	}
	seen := must(s.Look(context.Background()))(t)
	epoch, taken, err := s.Take(context.Background(), seen, false)
	if err != nil || !taken {
		t.Fatal(taken, err)
	}
	db.Lead(epoch)
	return s, epoch
}

const projectID = "default-project-00000000-0000-0000-0000-000000000000"

func newVersion(name string) process.NewVersion {
	return process.NewVersion{
		ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: name, ProcessType: "plain",
		ProcessLabels: map[string]string{"team": "a"}, Spec: process.Spec{Image: "alpine", Args: []string{"a'b\\c?", "ü\x01"}},
		SubmittedBy: "someone", BodyHash: "hash",
	}
}

// submit stores n versions of one process and returns them.
func submit(t testing.TB, db *DB, name string, n int) []process.Version {
	t.Helper()
	in := make([]process.NewVersion, n)
	for i := range in {
		in[i] = newVersion(name)
	}
	vs, _, err := db.Submit(t.Context(), projectID, in)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

// place pins an attempt to the default cluster.
func place(t testing.TB, db *DB, a process.Attempt) process.Attempt {
	t.Helper()
	return must(db.Decide(t.Context(), placement.Decision{AttemptID: a.ID, Outcome: placement.Placed, ClusterID: cluster.DefaultID},
		func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ClusterID, a.Namespace, a.JobName = process.Creating, cluster.DefaultID, "jobs", "job-"+a.ID
			return []event.Event{{Kind: event.Decided, Message: "Placed"}}, nil
		}))(t)
}

// to brings an attempt into a state.
func to(t testing.TB, db *DB, a process.Attempt, s process.State) process.Attempt {
	t.Helper()
	if s != process.Placing && a.State == process.Placing && s != process.Creating {
		a = place(t, db, a)
	}
	switch {
	case a.State == s:
		return a
	case s == process.Creating:
		return place(t, db, a)
	case s == process.Cancelled:
		a = to(t, db, a, process.Cancelling)
	}
	return must(db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
		a.State = s
		return []event.Event{{Kind: event.StateChanged}}, nil
	}))(t)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
