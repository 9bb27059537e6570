package store

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// The two ways in docs/operations/database.md to copy a SQLite database give a whole one.
func TestBackup(t *testing.T) {
	url := newURL(t, migrations.SQLite)
	db := open(t, url)
	vs := submit(t, db, "p", 4)
	dir := t.TempDir()

	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, v := range vs {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				must(db.UpdateAttempt(t.Context(), v.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
					a.Tries++
					return []event.Event{{Kind: event.ReasonChanged}}, nil
				}))(t)
			}
		})
	}
	hot := filepath.Join(dir, "hot.db")
	other, err := Open(t.Context(), Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.sql.Exec("VACUUM INTO '" + hot + "'")
	close(stop)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	cold := filepath.Join(dir, "cold.db")
	b, err := os.ReadFile(url[len("sqlite:"):])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cold, b, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{hot, cold} {
		restored := open(t, "sqlite:"+path)
		var events, tries int64
		if err := restored.ro.NewRaw("SELECT (SELECT count(*) FROM events), (SELECT sum(tries) FROM attempts)").Scan(t.Context(), &events, &tries); err != nil {
			t.Fatal(err)
		}
		if last := must(restored.LastSeq(t.Context()))(t); events != last || tries+4 != last {
			t.Errorf("%s: %d events, the last is %d, %d changes", filepath.Base(path), events, last, tries)
		}
		submit(t, restored, "p", 1)
	}
}
