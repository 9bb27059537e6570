package store

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/migrations"
)

func lake(name string) storage.Backend {
	return storage.Backend{Name: name, Type: storage.S3, Endpoint: "https://s3.example.org", Region: "r", Bucket: "b", Prefix: "p", PathStyle: true,
		Labels: map[string]string{"a": "b"}, Credentials: storage.Credentials{AccessKeyID: mark + "id", SecretAccessKey: mark + "key"}}
}

func TestStorageBackends(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		one := must(db.CreateStorageBackend(ctx, lake("one")))(t)
		if got := must(db.StorageBackend(ctx, one.ID))(t); got.Credentials != lake("").Credentials || got.Bucket != "b" || !got.PathStyle || got.Labels["a"] != "b" || got.Revision != 1 {
			t.Errorf("got %+v", got)
		}
		if _, err := db.CreateStorageBackend(ctx, lake("one")); !errors.Is(err, storage.ErrNameUsed) {
			t.Error(err)
		}
		var stored string
		if err := db.sql.QueryRow("SELECT credentials FROM storage_backends").Scan(&stored); err != nil || strings.Contains(stored, mark) {
			t.Errorf("stored as %q, %v", stored, err)
		}
		same := must(db.UpdateStorageBackend(ctx, one.ID, nil, func(*storage.Backend) error { return nil }))(t)
		if same.Revision != 1 {
			t.Errorf("nothing changed, and the revision is %d", same.Revision)
		}
		stale := int64(7)
		if _, err := db.UpdateStorageBackend(ctx, one.ID, &stale, func(*storage.Backend) error { return nil }); !errors.Is(err, storage.ErrStale) {
			t.Error(err)
		}
		p := must(db.CreateProject(ctx, project.Project{Name: "p", Storage: one.ID}))(t)
		if _, err := db.CreateProject(ctx, project.Project{Name: "q", Storage: "none such"}); !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
		if b, has, err := db.StorageOf(ctx, p.ID); err != nil || !has || b.ID != one.ID || b.Credentials != lake("").Credentials {
			t.Error(b, has, err)
		}
		var used *storage.InUse
		if err := db.DeleteStorageBackend(ctx, one.ID, nil); !errors.As(err, &used) || used.Projects != 1 {
			t.Error(err)
		}
		if _, err := db.UpdateStorageBackend(ctx, one.ID, nil, func(b *storage.Backend) error { b.Prefix = "x"; return nil }); !errors.As(err, &used) {
			t.Error(err)
		}
		if n := must(db.StorageProjects(ctx))(t); n[one.ID] != 1 || len(n) != 1 {
			t.Error(n)
		}
		must(db.UpdateProject(ctx, p.ID, nil, func(p *project.Project) error { p.Storage = ""; return nil }))(t)
		if _, has, err := db.StorageOf(ctx, p.ID); err != nil || has {
			t.Error(has, err)
		}
		if err := db.SetDefaultStorage(ctx, "none such"); !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
		if err := db.SetDefaultStorage(ctx, one.ID); err != nil || must(db.DefaultStorage(ctx))(t) != one.ID {
			t.Error(err)
		}
		if err := db.DeleteStorageBackend(ctx, one.ID, nil); err != nil {
			t.Error(err)
		}
		if _, err := db.StorageBackend(ctx, one.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
	})
}

// A backend is removed, or a project takes it up; never both.
func TestStorageRemovalAndUseRace(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		for range 20 {
			b := must(db.CreateStorageBackend(t.Context(), lake("race")))(t)
			var wg sync.WaitGroup
			var removed, taken error
			var p project.Project
			wg.Go(func() { removed = db.DeleteStorageBackend(t.Context(), b.ID, nil) })
			wg.Go(func() { p, taken = db.CreateProject(t.Context(), project.Project{Name: newID(), Storage: b.ID}) })
			wg.Wait()
			if (removed == nil) == (taken == nil) {
				t.Fatalf("removed: %v, taken up: %v", removed, taken)
			}
			if taken == nil {
				must(db.UpdateProject(t.Context(), p.ID, nil, func(p *project.Project) error { p.Storage = ""; return nil }))(t)
				if err := db.DeleteStorageBackend(t.Context(), b.ID, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// The rotation of keys covers credentials as it does provider configs, and what is stored is bound to its row.
func TestRotationCoversStorage(t *testing.T) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		t.Run(string(d), func(t *testing.T) {
			ctx := t.Context()
			own := secret.NewBox(filepath.Join(t.TempDir(), "keyset.json"))
			db := must(Open(ctx, Options{URL: newURL(t, d), Server: true, Sealer: own}))(t)
			defer db.Close()
			must(db.Migrate(ctx))(t)
			if db.Replicated() {
				lead(t, db)
			}
			must(own.Start(ctx, db))(t)
			one, two := must(db.CreateStorageBackend(ctx, lake("one")))(t), must(db.CreateStorageBackend(ctx, lake("two")))(t)
			must(db.CreateCluster(ctx, cluster.Cluster{Name: "c", ProviderConfig: marked(1)}))(t)
			did := must(own.Rotate(ctx, db, true))(t)
			if did.Encrypted != 3 || len(did.Dropped) != 1 || len(did.Unreadable) != 0 {
				t.Errorf("rotation %+v", did)
			}
			if got := must(db.StorageBackend(ctx, one.ID))(t); got.Credentials != lake("").Credentials || got.Revision != 1 {
				t.Errorf("after the rotation: %+v", got)
			}
			if _, err := db.sql.Exec("UPDATE storage_backends SET credentials = (SELECT credentials FROM storage_backends WHERE name = 'two') WHERE name = 'one'"); err != nil {
				t.Fatal(err)
			}
			if got := must(db.StorageBackend(ctx, one.ID))(t); got.Credentials != (storage.Credentials{}) {
				t.Error("credentials of another row open")
			}
			if got := must(db.StorageBackend(ctx, two.ID))(t); got.Credentials == (storage.Credentials{}) {
				t.Error("its own do not")
			}
			if s := must(own.Status(ctx, db))(t); len(s.Unreadable) != 1 || s.Unreadable[0] != "storage backend "+one.ID {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A Secret is used while an attempt lives that may name it, and is forgotten only when none is noted.
func TestSecretUses(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		s := storage.Secret{ClusterID: cluster.DefaultID, Namespace: "jobs", Name: "x"}
		vs := submit(t, db, "p", 2)
		for _, v := range vs {
			for range 2 { // a repeated create notes it again
				if err := db.UseSecret(ctx, s, v.Attempt.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		end := func(v process.Version) {
			a := to(t, db, v.Attempt, process.Creating)
			must(db.UpdateAttempt(ctx, a.ID, func(a *process.Attempt) ([]event.Event, error) {
				at := now()
				a.State, a.EndedAt = process.Failed, &at
				return nil, nil
			}))(t)
		}
		check := func(used bool, there int) {
			t.Helper()
			if err := db.EndSecretUses(ctx, s); err != nil {
				t.Fatal(err)
			}
			got := must(db.SecretUsed(ctx, s))(t)
			if err := db.ForgetSecret(ctx, s); err != nil {
				t.Fatal(err)
			}
			if all := must(db.SecretsOn(ctx, cluster.DefaultID))(t); got != used || len(all) != there || there == 1 && all[0] != s {
				t.Fatalf("used: %v, there: %v", got, all)
			}
			if c := must(db.SecretClusters(ctx))(t); c[cluster.DefaultID] != (there == 1) {
				t.Error(c)
			}
		}
		check(true, 1)
		end(vs[0])
		check(true, 1)
		end(vs[1])
		check(false, 0)
		if err := db.UseSecret(ctx, s, vs[0].Attempt.ID); err != nil { // noted anew after it was forgotten
			t.Fatal(err)
		}
	})
}

// Who changed where data goes can be read afterwards, as for clusters.
func TestStorageChangesAreEvents(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		says := func(what, projectID string, want ...string) {
			t.Helper()
			var got []string
			var last int64
			for _, e := range must(db.Events(ctx, EventFilter{Kinds: []event.Kind{event.StorageChanged}}))(t) {
				if e.Seq <= last || e.Actor != "system" {
					t.Errorf("%+v", e)
				}
				last = e.Seq
				if e.ProjectID == projectID {
					got = append(got, e.Message)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		b := must(db.CreateStorageBackend(ctx, storage.Backend{Name: "lake", Type: "s3", Bucket: "b"}))(t)
		same := func(*storage.Backend) error { return nil }
		must(db.UpdateStorageBackend(ctx, b.ID, nil, same))(t)
		must(db.UpdateStorageBackend(ctx, b.ID, nil, func(b *storage.Backend) error { b.Region = "eu"; return nil }))(t)
		for _, id := range []string{b.ID, b.ID, "", ""} {
			if err := db.SetDefaultStorage(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		p := must(db.CreateProject(ctx, project.Project{Name: "p", Storage: b.ID}))(t)
		if _, err := db.CreateProject(ctx, project.Project{Name: "p", Storage: b.ID}); err == nil {
			t.Fatal("two of a name")
		}
		must(db.UpdateProject(ctx, p.ID, nil, func(p *project.Project) error { p.Name = "q"; return nil }))(t)
		must(db.UpdateProject(ctx, p.ID, nil, func(p *project.Project) error { p.Storage = ""; return nil }))(t)
		if err := db.DeleteStorageBackend(ctx, b.ID, nil); err != nil {
			t.Fatal(err)
		}
		says("the backend", "", "Storage backend lake added", "Storage backend lake changed", "Storage backend lake is the default now",
			"There is no default storage backend any more", "Storage backend lake removed")
		says("the project", p.ID, "The project's storage backend is lake", "The project has no storage any more")
	})
}
