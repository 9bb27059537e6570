package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

func TestSecondServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "n.db")
	db := open(t, "sqlite:"+path)
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err := Open(t.Context(), Options{URL: "sqlite:" + p, Server: true})
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", p, err)
		}
	}
	beside, err := Open(t.Context(), Options{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal("a command beside the server:", err)
	}
	if s, err := beside.MigrationStatus(t.Context()); err != nil || s[0].AppliedAt.IsZero() {
		t.Error(s, err)
	}
	must(beside.CreateUser(t.Context(), newUser("beside")))(t)
	if err := beside.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, "sqlite:"+path) // the lock is free
}

func TestOpenSQLite(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b?mode=memory#x%20&.db", "ü'\"\\.db"} {
		path := filepath.Join(dir, name)
		db := open(t, "sqlite:"+path)
		must(db.CreateUser(t.Context(), newUser("u")))(t)
		for _, file := range []string{path, path + "-wal", path + ".lock"} {
			info, err := os.Stat(file)
			if err != nil {
				t.Error(err)
			} else if info.Mode().Perm() != 0o600 {
				t.Errorf("%s can be read by others: %v", file, info.Mode())
			}
		}
		var mode, sync string
		if err := db.sql.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Error(mode, err)
		}
		if err := db.sql.QueryRow("PRAGMA synchronous").Scan(&sync); err != nil || sync != "2" {
			t.Error(sync, err)
		}
		if _, err := db.ro.NewRaw("DELETE FROM users").Exec(t.Context()); err == nil {
			t.Error("the read pool writes")
		}
	}
	for url, want := range map[string]string{
		"sqlite:": "needs a file", "sqlite::memory:": "needs a file", "sqlite:" + dir + "/none/x.db": "no such file",
		"mysql://u:secret@h/d": "must begin with", "postgres://u:secret@127.0.0.1:1/d?sslmode=disable": "cannot reach", "postgres://u:secret@h:x/d": "cannot parse",
	} {
		_, err := Open(t.Context(), Options{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Writes that wait share a commit; one that fails or panics is undone alone.
func TestGroupIsolation(t *testing.T) {
	db := open(t, newURL(t, migrations.SQLite))
	ctx := t.Context()
	vs := submit(t, db, "p", 30)

	// Holds the writer until all others wait, so that they become one group.
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = db.write(ctx, "test", func(*tx) error {
			close(entered)
			<-release
			return nil
		})
	})
	<-entered
	started := make(chan struct{}, len(vs))
	boom := errors.New("boom")
	for i, v := range vs {
		wg.Go(func() {
			defer func() {
				if p := recover(); (p != nil) != (i%3 == 2) {
					t.Errorf("%d: panic %v", i, p)
				}
			}()
			started <- struct{}{}
			_, err := db.UpdateAttempt(ctx, v.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
				a.Tries = 9
				switch i % 3 {
				case 1:
					return []event.Event{{Kind: event.StateChanged}}, boom
				case 2:
					panic(boom)
				}
				return []event.Event{{Kind: event.StateChanged}}, nil
			})
			if (err != nil) != (i%3 == 1) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	for range vs {
		<-started
	}
	// Reads do not wait for the writer.
	if a := must(db.Attempt(ctx, vs[0].Attempt.ID))(t); a.Tries != 0 {
		t.Error("uncommitted writes are read")
	}
	if n := must(db.LastSeq(ctx))(t); n != 30 {
		t.Error(n)
	}
	// Whoever waits can give up.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := db.CreateUser(gone, newUser("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	wg.Wait()
	for i, v := range vs {
		if a := must(db.Attempt(ctx, v.Attempt.ID))(t); (a.Tries == 9) != (i%3 == 0) {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if n := must(db.LastSeq(ctx))(t); n != 40 {
		t.Error("events:", n)
	}
}

func TestClose(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		for range 2 {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := db.CreateUser(t.Context(), newUser("x")); err == nil {
			t.Error("wrote after Close")
		}
		if _, err := db.Projects(t.Context()); err == nil {
			t.Error("read after Close")
		}
	})
}
