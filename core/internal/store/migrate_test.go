package store

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/migrations"
)

// Servers that start at once apply each migration once.
func TestServersDoNotRace(t *testing.T) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		t.Run(string(d), func(t *testing.T) {
			url := newURL(t, d)
			var (
				wg  sync.WaitGroup
				mu  sync.Mutex
				all []string
			)
			for range 6 {
				wg.Go(func() {
					db, err := Open(t.Context(), Options{URL: url})
					if err != nil {
						t.Error(err)
						return
					}
					defer db.Close()
					applied, err := db.Migrate(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					all = append(all, applied...)
				})
			}
			wg.Wait()
			var want []string
			for _, m := range must(migrations.List(d))(t) {
				want = append(want, m.Name)
			}
			if slices.Sort(all); !slices.Equal(all, want) {
				t.Errorf("applied %v, want %v", all, want)
			}
		})
	}
}

func TestMigrationStatus(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for _, s := range must(db.MigrationStatus(ctx))(t) {
			if s.AppliedAt.IsZero() || s.Drifted || s.Unknown {
				t.Errorf("%+v", s)
			}
		}
		if applied := must(db.Migrate(ctx))(t); applied != nil {
			t.Error("applied again:", applied)
		}
		must(db.rw.Exec("INSERT INTO schema_migrations VALUES ('29990101000000_future', 'x', 0)"))(t)
		if _, err := db.Migrate(ctx); !errors.Is(err, migrations.ErrNewer) || !strings.Contains(err.Error(), "29990101000000_future") {
			t.Error(err)
		}
		must(db.rw.Exec("DELETE FROM schema_migrations WHERE checksum = 'x'"))(t)
		must(db.rw.Exec("UPDATE schema_migrations SET checksum = 'y'"))(t)
		if _, err := db.Migrate(ctx); !errors.Is(err, migrations.ErrDrift) {
			t.Error(err)
		}
		if s := must(db.MigrationStatus(ctx))(t); !s[0].Drifted {
			t.Errorf("%+v", s)
		}
	})
	t.Run("of an empty PostgreSQL", func(t *testing.T) {
		db, err := Open(t.Context(), Options{URL: newURL(t, migrations.PostgreSQL)})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if s := must(db.MigrationStatus(t.Context()))(t); !s[0].AppliedAt.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}
