package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/migrations"
)

const mark = "SECRET-MARK-1"

func marked(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"token": "%s-%d"}`, mark, n))
}

func withConfig(config json.RawMessage) func(*cluster.Cluster) error {
	return func(c *cluster.Cluster) error { c.ProviderConfig = config; return nil }
}

func storedConfig(t testing.TB, db *DB, id string) (text string) {
	t.Helper()
	if err := db.ro.NewRaw("SELECT provider_config FROM clusters WHERE id = ?", id).Scan(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestConfigsAreEncrypted(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := must(db.CreateCluster(ctx, cluster.Cluster{Name: "a", Type: "t", ProviderConfig: marked(1)}))(t)
		b := must(db.CreateCluster(ctx, cluster.Cluster{Name: "b", Type: "t", ProviderConfig: marked(1)}))(t)
		if string(a.ProviderConfig) != string(marked(1)) || string(must(db.Cluster(ctx, a.ID))(t).ProviderConfig) != string(marked(1)) {
			t.Error("it reads back as", string(a.ProviderConfig))
		}
		before := storedConfig(t, db, a.ID)
		if strings.Contains(before, mark) || strings.Contains(before, "token") || before[:40] == storedConfig(t, db, b.ID)[:40] {
			t.Error("stored as", before)
		}

		t.Run("an equal config is no change", func(t *testing.T) {
			got := must(db.UpdateCluster(ctx, a.ID, nil, withConfig(marked(1))))(t)
			if got.Revision != 1 || storedConfig(t, db, a.ID) != before {
				t.Errorf("%+v", got)
			}
			got = must(db.UpdateCluster(ctx, a.ID, nil, func(c *cluster.Cluster) error { c.SortOrder++; return withConfig(marked(1))(c) }))(t)
			if got.Revision != 2 || got.ConfigRevision != 1 {
				t.Errorf("%+v", got)
			}
			// Also when it was sealed with a key that is not the primary one any more.
			must(box.Rotate(ctx, db, false))(t)
			got = must(db.UpdateCluster(ctx, a.ID, nil, withConfig(marked(1))))(t)
			if got.Revision != 2 || got.ConfigRevision != 1 || storedConfig(t, db, a.ID) == before {
				t.Errorf("after a rotation: %+v", got)
			}
			got = must(db.UpdateCluster(ctx, a.ID, nil, withConfig(marked(2))))(t)
			if got.Revision != 3 || got.ConfigRevision != 2 {
				t.Errorf("another config: %+v", got)
			}
		})
		t.Run("a row that is swapped does not open, and nothing else suffers", func(t *testing.T) {
			mine := storedConfig(t, db, a.ID)
			if _, err := db.sql.Exec("UPDATE clusters SET provider_config = '" + storedConfig(t, db, b.ID) + "' WHERE id = '" + a.ID + "'"); err != nil {
				t.Fatal(err)
			}
			must(db.UpdateCluster(ctx, b.ID, nil, func(c *cluster.Cluster) error { c.SortOrder++; return nil }))(t) // forgets what is remembered
			if got := must(db.Cluster(ctx, a.ID))(t); got.ProviderConfig != nil {
				t.Errorf("opened as %s", got.ProviderConfig)
			}
			if got := must(db.Cluster(ctx, b.ID))(t); string(got.ProviderConfig) != string(marked(1)) {
				t.Errorf("the other row: %s", got.ProviderConfig)
			}
			s := must(box.Status(ctx, db))(t)
			if len(s.Unreadable) != 1 || s.Unreadable[0] != "cluster "+a.ID {
				t.Errorf("%+v", s)
			}
			// A change of something else keeps what cannot be read; a new config heals the row.
			got := must(db.UpdateCluster(ctx, a.ID, nil, func(c *cluster.Cluster) error { c.SortOrder = 9; return nil }))(t)
			if got.ConfigRevision != 2 || storedConfig(t, db, a.ID) == mine || storedConfig(t, db, a.ID) == noConfig {
				t.Errorf("%+v", got)
			}
			got = must(db.UpdateCluster(ctx, a.ID, nil, withConfig(marked(3))))(t)
			if got.ConfigRevision != 3 || string(got.ProviderConfig) != string(marked(3)) {
				t.Errorf("%+v", got)
			}
		})
		t.Run("plain text in the row is not taken", func(t *testing.T) {
			if _, err := db.sql.Exec(`UPDATE clusters SET provider_config = '{"token":"planted"}' WHERE id = '` + b.ID + "'"); err != nil {
				t.Fatal(err)
			}
			if got := must(db.UpdateCluster(ctx, b.ID, nil, func(c *cluster.Cluster) error { c.SortOrder++; return nil }))(t); got.ProviderConfig != nil {
				t.Errorf("opened as %s", got.ProviderConfig)
			}
		})
	})
}

func TestWithoutKeysetNoConfigs(t *testing.T) {
	db := must(Open(t.Context(), Options{URL: newURL(t, migrations.SQLite)}))(t)
	defer db.Close()
	must(db.Migrate(t.Context()))(t)
	if _, err := db.CreateCluster(t.Context(), cluster.Cluster{Name: "a", ProviderConfig: marked(1)}); !errors.Is(err, errNoSealer) {
		t.Error(err)
	}
	must(db.CreateCluster(t.Context(), cluster.Cluster{Name: "a"}))(t)
}

// Rows of a version that did not encrypt are encrypted at the start, and no file of the database holds them afterwards:
// neither what was overwritten, nor what was deleted, nor the -wal file.
func TestB11PlainConfigsAreEncryptedAtTheStart(t *testing.T) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		t.Run(string(d), func(t *testing.T) {
			ctx, url := t.Context(), newURL(t, d)
			own := secret.NewBox(filepath.Join(t.TempDir(), "keyset.json"))
			db := must(Open(ctx, Options{URL: url, Server: true, Sealer: own}))(t)
			defer db.Close()
			must(db.Migrate(ctx))(t)
			if db.Replicated() {
				lead(t, db)
			}
			for i := range 3 {
				c := must(db.CreateCluster(ctx, cluster.Cluster{Name: fmt.Sprint(i), Type: "t"}))(t)
				for n := range 5 { // large ones need pages of their own
					config := fmt.Sprintf(`{"token":"%s","n":%d}`, strings.Repeat(mark, 1000), n)
					if _, err := db.sql.Exec("UPDATE clusters SET provider_config = '" + config + "' WHERE id = '" + c.ID + "'"); err != nil {
						t.Fatal(err)
					}
				}
				if i == 0 {
					if err := db.DeleteCluster(ctx, c.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			if d == migrations.SQLite && grep(t, url) == 0 {
				t.Fatal("the files do not hold what is to be removed")
			}
			did := must(own.Start(ctx, db))(t)
			if !did.Created || did.Encrypted != 2 || len(did.Unreadable) != 0 {
				t.Errorf("%+v", did)
			}
			if did := must(own.Start(ctx, db))(t); did.Created || did.Encrypted != 0 {
				t.Errorf("a second start: %+v", did)
			}
			for _, text := range must(db.Secrets(ctx))(t) {
				if strings.Contains(text.Stored, mark) {
					t.Error("plain:", text.Stored)
				}
			}
			for _, c := range must(db.Clusters(ctx))(t) {
				if c.ID != cluster.DefaultID && !strings.Contains(string(c.ProviderConfig), mark) {
					t.Errorf("%s is lost: %s", c.Name, c.ProviderConfig)
				}
			}
			if d == migrations.SQLite {
				if n := grep(t, url); n > 0 {
					t.Errorf("the files hold the secret %d times", n)
				}
			}
		})
	}
}

// grep counts the marker in all files of a SQLite database.
func grep(t *testing.T, url string) (n int) {
	t.Helper()
	files, err := filepath.Glob(strings.TrimPrefix(url, "sqlite:") + "*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(b), mark)
	}
	return n
}

func TestMissingOrWrongKeyset(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx, dir := t.Context(), t.TempDir()
		elsewhere := filepath.Join(dir, "elsewhere.json")
		if _, err := secret.NewBox(elsewhere).Start(ctx, db); !errors.Is(err, secret.ErrMissing) || !strings.Contains(err.Error(), elsewhere) || !strings.Contains(err.Error(), "secrets.keyset_file") {
			t.Error("missing, with a fingerprint:", err)
		}
		if _, err := os.Stat(elsewhere); err == nil {
			t.Error("a keyset was made in the place of the missing one")
		}
		// Another database's keyset.
		other := must(Open(ctx, Options{URL: newURL(t, migrations.SQLite)}))(t)
		defer other.Close()
		must(other.Migrate(ctx))(t)
		wrong := secret.NewBox(filepath.Join(dir, "wrong.json"))
		must(wrong.Start(ctx, other))(t)
		if _, err := wrong.Start(ctx, db); !errors.Is(err, secret.ErrWrong) {
			t.Error("wrong:", err)
		}
		if s := must(wrong.Status(ctx, db))(t); s.Problem == "" {
			t.Errorf("%+v", s)
		}
		if _, err := wrong.Rotate(ctx, db, true); !errors.Is(err, secret.ErrWrong) {
			t.Error("rotate with a wrong one:", err)
		}
		// What is encrypted counts, also when the fingerprint is lost.
		must(db.CreateCluster(ctx, cluster.Cluster{Name: "a", ProviderConfig: marked(1)}))(t)
		if err := db.SetSetting(ctx, settingKeyset, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := secret.NewBox(elsewhere).Start(ctx, db); !errors.Is(err, secret.ErrMissing) {
			t.Error("missing, with encrypted rows:", err)
		}
		if _, err := wrong.Start(ctx, db); !errors.Is(err, secret.ErrWrong) {
			t.Error("wrong, with encrypted rows:", err)
		}
		must(box.Start(ctx, db))(t)

		// The way out of docs/operations/secrets.md when the keyset is lost.
		for _, q := range []string{"UPDATE clusters SET provider_config = '{}'", "DELETE FROM settings WHERE key = 'keyset'"} {
			if _, err := db.sql.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
		if did := must(secret.NewBox(elsewhere).Start(ctx, db))(t); !did.Created {
			t.Errorf("%+v", did)
		}
	})
}

// Another process rotates while a server writes: no config is lost, and in the end one key is left, which opens them all.
func TestRotationBesideAServer(t *testing.T) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		t.Run(string(d), func(t *testing.T) {
			ctx, url, path := t.Context(), newURL(t, d), filepath.Join(t.TempDir(), "keyset.json")
			serverBox := secret.NewBox(path)
			db := must(Open(ctx, Options{URL: url, Server: true, Sealer: serverBox}))(t)
			defer db.Close()
			must(db.Migrate(ctx))(t)
			if db.Replicated() {
				lead(t, db)
			}
			must(serverBox.Start(ctx, db))(t)
			const writers = 4
			ids := make([]string, writers)
			for i := range ids {
				ids[i] = must(db.CreateCluster(ctx, cluster.Cluster{Name: fmt.Sprint(i), ProviderConfig: marked(0)}))(t).ID
			}
			stop := make(chan struct{})
			last := make([]int, writers)
			var wg sync.WaitGroup
			for i, id := range ids {
				wg.Go(func() {
					for n := 1; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := db.UpdateCluster(ctx, id, nil, withConfig(marked(n))); err != nil {
							t.Error(err)
							return
						}
						last[i] = n
					}
				})
			}
			other := must(Open(ctx, Options{URL: url}))(t)
			defer other.Close()
			for range 5 {
				did, err := secret.NewBox(path).Rotate(ctx, other, true)
				if err != nil {
					t.Error(err)
				} else if len(did.Dropped) != 1 {
					t.Errorf("%+v", did)
				}
			}
			close(stop)
			wg.Wait()
			fresh := secret.NewBox(path)
			s := must(fresh.Status(ctx, db))(t)
			if s.Problem != "" || len(s.Keys) != 1 || s.Keys[0].Configs != writers || len(s.Unreadable)+len(s.Plain) != 0 {
				t.Errorf("%+v", s)
			}
			for i, id := range ids {
				if got := must(db.Cluster(ctx, id))(t); string(got.ProviderConfig) != string(marked(last[i])) || got.ConfigRevision != int64(1+last[i]) {
					t.Errorf("%s at %d, want %d", got.ProviderConfig, got.ConfigRevision, last[i])
				}
			}
		})
	}
}

// cut ends the work at the n-th step, as a power cut would: before it, after it, or between the file and the commit.
type cut struct {
	*DB
	left int
}

var errCut = errors.New("power cut")

func (c *cut) now() bool { c.left--; return c.left == 0 }

func (c *cut) Reseal(ctx context.Context, old secret.Text, seal func() (string, error)) (bool, error) {
	if c.now() {
		return false, errCut
	}
	return c.DB.Reseal(ctx, old, seal)
}

func (c *cut) Scrub(ctx context.Context) error {
	if c.now() {
		return errCut
	}
	return c.DB.Scrub(ctx)
}

func (c *cut) ChangeKeys(ctx context.Context, change func([]secret.Text) ([]string, error)) error {
	if c.now() {
		return errCut
	}
	between := c.now()
	err := c.DB.ChangeKeys(ctx, func(texts []secret.Text) ([]string, error) {
		fingerprints, err := change(texts)
		if between {
			err = errCut
		}
		return fingerprints, err
	})
	if err == nil && c.now() {
		err = errCut
	}
	return err
}

// The first start and a rotation may be interrupted anywhere: the server starts afterwards, nothing is lost, and both can be
// run again.
func TestInterruptedAnywhere(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "keyset.json")
		db.sealer = secret.NewBox(path)
		ids := map[string]int{}
		reset := func() {
			t.Helper()
			if err := db.SetSetting(ctx, settingKeyset, ""); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(path)
			for id, n := range ids {
				if _, err := db.sql.Exec(fmt.Sprintf("UPDATE clusters SET provider_config = '%s' WHERE id = '%s'", marked(n), id)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n := range 3 {
			ids[must(db.CreateCluster(ctx, cluster.Cluster{Name: fmt.Sprint(n)}))(t).ID] = n
		}
		whole := func(step int) {
			t.Helper()
			if _, err := secret.NewBox(path).Start(ctx, db); err != nil {
				t.Fatalf("cut at %d, the next start: %v", step, err)
			}
			for id, n := range ids {
				text, err := secret.NewBox(path).Open(configPlace(id), storedConfig(t, db, id))
				if err != nil || string(text) != string(marked(n)) {
					t.Fatalf("cut at %d: %s %v", step, text, err)
				}
			}
		}
		for step := 1; ; step++ {
			reset()
			_, err := secret.NewBox(path).Start(ctx, &cut{DB: db, left: step})
			whole(step)
			if err == nil {
				break
			}
		}
		for step := 1; ; step++ {
			reset()
			must(secret.NewBox(path).Start(ctx, db))(t)
			_, err := secret.NewBox(path).Rotate(ctx, &cut{DB: db, left: step}, true)
			whole(step)
			must(secret.NewBox(path).Rotate(ctx, db, true))(t)
			if s := must(secret.NewBox(path).Status(ctx, db))(t); len(s.Keys) != 1 || s.Problem != "" {
				t.Fatalf("cut at %d, after the next rotation: %+v", step, s)
			}
			whole(step)
			if err == nil {
				break
			}
		}
	})
}
