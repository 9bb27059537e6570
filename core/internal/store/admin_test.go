package store

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
)

func newUser(name string) auth.User { return auth.User{Name: name, Groups: []string{"g", "h"}} }

func TestSeeds(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := must(db.Cluster(ctx, cluster.DefaultID))(t)
		if c.Name != "Default Cluster" || c.Type != "same-as-backend" || string(c.ProviderConfig) != "{}" || c.Namespace != "" || !c.Active ||
			c.Provisioning != cluster.Provisioned || c.Observed.Health != cluster.New || time.Since(c.CreatedAt) > time.Hour {
			t.Errorf("%+v", c)
		}
		if id := must(db.DefaultCluster(ctx))(t); id != cluster.DefaultID {
			t.Error(id)
		}
		p := must(db.ProjectByName(ctx, "default"))(t)
		if p.ID != projectID || p.Allowed != nil || p.HomeCluster != "" {
			t.Errorf("%+v", p)
		}
	})
}

func TestClusters(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := auth.With(t.Context(), auth.Principal{UserID: "admin"})
		runtime := int64(3600)
		in := cluster.Cluster{
			Name: "b", Type: "kubeconfig", ProviderConfig: json.RawMessage(`{"b": 1,  "a": "it's\u0000"}`), Namespace: "jobs",
			Labels: map[string]string{"gpu": "yes"}, SortOrder: -1, Active: true, QueueName: "q", MaxRuntime: &runtime,
			Provisioning: cluster.Pending, Cordon: &cluster.Cordon{By: "me", Reason: "why", At: now()},
		}
		c := must(db.CreateCluster(ctx, in))(t)
		if d := cmp.Diff(c, must(db.Cluster(ctx, c.ID))(t)); d != "" {
			t.Errorf("-returned +read\n%s", d)
		}
		in.ID, in.Revision, in.ConfigRevision, in.CreatedAt, in.UpdatedAt, in.Observed = c.ID, 1, 1, c.CreatedAt, c.UpdatedAt, c.Observed
		if d := cmp.Diff(in, c); d != "" {
			t.Errorf("-given +stored\n%s", d)
		}
		for _, name := range []string{"c", "a"} {
			must(db.CreateCluster(ctx, cluster.Cluster{Name: name, Type: "t"}))(t)
		}
		var names []string
		for _, c := range must(db.Clusters(ctx))(t) {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, ","); got != "b,Default Cluster,a,c" {
			t.Error(got)
		}
		if _, err := db.CreateCluster(ctx, cluster.Cluster{Name: "b"}); !errors.Is(err, cluster.ErrNameUsed) {
			t.Error(err)
		}
		es := must(db.Events(ctx, EventFilter{Kinds: []event.Kind{event.ClusterChanged}}))(t)
		if len(es) != 3 || es[0].ClusterID != c.ID || es[0].Actor != "admin" {
			t.Errorf("%+v", es)
		}

		t.Run("update", func(t *testing.T) {
			stale, current := int64(7), int64(1)
			nothing := func(*cluster.Cluster) error { return nil }
			if _, err := db.UpdateCluster(ctx, c.ID, &stale, nothing); !errors.Is(err, cluster.ErrStale) {
				t.Error(err)
			}
			if got := must(db.UpdateCluster(ctx, c.ID, &current, nothing))(t); got.Revision != 1 {
				t.Error("no change made a revision")
			}
			got := must(db.UpdateCluster(ctx, c.ID, &current, func(c *cluster.Cluster) error {
				c.Labels["more"], c.Cordon, c.Observed.Health = "x", nil, cluster.Lost
				return nil
			}))(t)
			if got.Revision != 2 || got.ConfigRevision != 1 || got.Cordon != nil || got.Labels["more"] != "x" || got.Observed.Health != cluster.New {
				t.Errorf("%+v", got)
			}
			if d := cmp.Diff(got, must(db.Cluster(ctx, c.ID))(t)); d != "" {
				t.Error(d)
			}
			got = must(db.UpdateCluster(ctx, c.ID, nil, func(c *cluster.Cluster) error {
				c.ProviderConfig, c.Namespace, c.MaxRuntime = json.RawMessage(`{}`), "", nil
				return nil
			}))(t)
			if got.Revision != 3 || got.ConfigRevision != 2 || got.Namespace != "" || got.MaxRuntime != nil {
				t.Errorf("%+v", got)
			}
			if _, err := db.UpdateCluster(ctx, c.ID, nil, func(c *cluster.Cluster) error { c.Name = "a"; return nil }); !errors.Is(err, cluster.ErrNameUsed) {
				t.Error(err)
			}
			boom := errors.New("boom")
			if _, err := db.UpdateCluster(ctx, c.ID, nil, func(c *cluster.Cluster) error { return boom }); !errors.Is(err, boom) {
				t.Error(err)
			}
		})
		t.Run("observe", func(t *testing.T) {
			at, before := now(), must(db.Cluster(ctx, c.ID))(t)
			o := cluster.Observed{
				Health: cluster.Suspect, Reason: "timeout", Message: "no answer", Since: at, CheckedAt: at, Version: "v1.37.2", Identity: "uid", Unreachable: &at,
				Capacity: &cluster.Capacity{ObservedAt: at, Nodes: 2, Resources: map[string]cluster.ResourceCapacity{"cpu": {NodeMax: 4, Free: -1}}},
			}
			seq := must(db.LastSeq(ctx))(t)
			for range 2 {
				if err := db.Observe(ctx, c.ID, o); err != nil {
					t.Fatal(err)
				}
			}
			got := must(db.Cluster(ctx, c.ID))(t)
			before.Observed = o
			if d := cmp.Diff(before, got); d != "" {
				t.Error(d)
			}
			es := must(db.Events(ctx, EventFilter{After: seq}))(t)
			if len(es) != 1 || es[0].Message != "Cluster b is suspect: no answer" || es[0].Actor != "system" {
				t.Errorf("%+v", es)
			}
		})
		t.Run("delete", func(t *testing.T) {
			if err := db.DeleteCluster(ctx, c.ID); err != nil {
				t.Fatal(err)
			}
			if err := db.DeleteCluster(ctx, c.ID); !errors.Is(err, cluster.ErrNotFound) {
				t.Error(err)
			}
			if _, err := db.Cluster(ctx, c.ID); !errors.Is(err, cluster.ErrNotFound) {
				t.Error(err)
			}
			if n := len(must(db.Clusters(ctx))(t)); n != 3 {
				t.Error(n)
			}
			if again := must(db.CreateCluster(ctx, cluster.Cluster{Name: "b"}))(t); again.ID == c.ID {
				t.Error("a new cluster has the id of a removed one")
			}
			if err := db.Observe(ctx, c.ID, cluster.Observed{}); !errors.Is(err, cluster.ErrNotFound) {
				t.Error(err)
			}
		})
	})
}

func TestClusterInUse(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		vs := submit(t, db, "p", 5)
		to(t, db, vs[0].Attempt, process.Running)
		to(t, db, vs[1].Attempt, process.Running)
		a := to(t, db, vs[2].Attempt, process.Queued)
		to(t, db, vs[3].Attempt, process.Succeeded)
		err := db.DeleteCluster(ctx, cluster.DefaultID)
		if !errors.Is(err, cluster.ErrInUse) || !strings.Contains(err.Error(), "Default Cluster has 1 queued, 2 running") {
			t.Error(err)
		}
		if _, err := db.UpdateCluster(ctx, cluster.DefaultID, nil, func(c *cluster.Cluster) error { c.Namespace = "other"; return nil }); !errors.Is(err, cluster.ErrInUse) {
			t.Error(err)
		}
		for _, b := range []process.Attempt{vs[0].Attempt, vs[1].Attempt, a} {
			to(t, db, must(db.Attempt(ctx, b.ID))(t), process.Failed)
		}
		if err := db.DeleteCluster(ctx, cluster.DefaultID); err != nil {
			t.Error(err)
		}
		if v := must(db.Version(ctx, vs[0].ID))(t); v.Attempt.ClusterID != cluster.DefaultID {
			t.Error("the history is lost")
		}
	})
}

// No attempt is placed on a cluster that is removed at the same time.
func TestPlaceWhileRemoving(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for range 20 {
			c := must(db.CreateCluster(ctx, cluster.Cluster{Name: newID()}))(t)
			a := submit(t, db, "p", 1)[0].Attempt
			var placed, removed error
			var wg sync.WaitGroup
			wg.Go(func() {
				_, placed = db.Decide(ctx, placement.Decision{AttemptID: a.ID}, func(a *process.Attempt) ([]event.Event, error) {
					a.State, a.ClusterID = process.Creating, c.ID
					return nil, nil
				})
			})
			wg.Go(func() { removed = db.DeleteCluster(ctx, c.ID) })
			wg.Wait()
			keeps, goes := placed == nil && errors.Is(removed, cluster.ErrInUse), removed == nil && errors.Is(placed, cluster.ErrNotFound)
			if keeps == goes {
				t.Errorf("placed: %v, removed: %v", placed, removed)
			}
		}
	})
}

func TestProjects(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		u, v := must(db.CreateUser(ctx, newUser("u")))(t), must(db.CreateUser(ctx, newUser("v")))(t)
		p := must(db.CreateProject(ctx, project.Project{
			Name: "b", Labels: map[string]string{"a": "b"}, HomeCluster: cluster.DefaultID, Allowed: []string{"z", "y"}, Members: []string{v.ID, u.ID, v.ID},
		}))(t)
		if d := cmp.Diff([]string{u.ID, v.ID}, p.Members); d != "" || p.Revision != 1 || p.Allowed[0] != "z" {
			t.Errorf("%+v", p)
		}
		for _, got := range []project.Project{must(db.Project(ctx, p.ID))(t), must(db.ProjectByName(ctx, "b"))(t), must(db.Projects(ctx))(t)[0]} {
			if d := cmp.Diff(p, got); d != "" {
				t.Errorf("-returned +read\n%s", d)
			}
		}
		for name, c := range map[string]struct {
			p    project.Project
			want error
		}{
			"name":    {project.Project{Name: "b"}, project.ErrNameUsed},
			"cluster": {project.Project{Name: "c", HomeCluster: "none"}, cluster.ErrNotFound},
			"member":  {project.Project{Name: "c", Members: []string{"none"}}, auth.ErrNotFound},
		} {
			if _, err := db.CreateProject(ctx, c.p); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		stale := int64(2)
		if _, err := db.UpdateProject(ctx, p.ID, &stale, func(*project.Project) error { return nil }); !errors.Is(err, project.ErrStale) {
			t.Error(err)
		}
		if got := must(db.UpdateProject(ctx, p.ID, nil, func(*project.Project) error { return nil }))(t); got.Revision != 1 {
			t.Error("no change made a revision")
		}
		got := must(db.UpdateProject(ctx, p.ID, nil, func(p *project.Project) error {
			p.HomeCluster, p.Allowed, p.Members, p.Labels["c"] = "", []string{}, []string{u.ID}, "d"
			return nil
		}))(t)
		if got.Revision != 2 || got.Allowed == nil || len(got.Allowed) != 0 || len(got.Members) != 1 || got.Labels["c"] != "d" {
			t.Errorf("%+v", got)
		}
		if d := cmp.Diff(got, must(db.Project(ctx, p.ID))(t)); d != "" {
			t.Error(d)
		}
		for _, err := range []error{second(db.Project(ctx, "none")), second(db.ProjectByName(ctx, "none")), second(db.UpdateProject(ctx, "none", nil, nil))} {
			if !errors.Is(err, project.ErrNotFound) {
				t.Error(err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestUsersAndKeys(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		u := must(db.CreateUser(ctx, auth.User{Name: "u", Groups: []string{"b", "a"}, Admin: true}))(t)
		plain := must(db.CreateUser(ctx, auth.User{Name: "a"}))(t)
		if d := cmp.Diff([]auth.User{plain, u}, must(db.Users(ctx))(t)); d != "" {
			t.Error(d)
		}
		for _, got := range []auth.User{must(db.User(ctx, u.ID))(t), must(db.UserByName(ctx, "u"))(t)} {
			if d := cmp.Diff(u, got); d != "" {
				t.Error(d)
			}
		}
		end := now().Add(time.Hour)
		k := must(db.CreateAPIKey(ctx, auth.APIKey{UserID: u.ID, Name: "n", Prefix: "abcdefgh", SecretHash: "h", ExpiresAt: &end}))(t)
		l := must(db.CreateAPIKey(ctx, auth.APIKey{UserID: plain.ID, Prefix: "12345678"}))(t)
		if d := cmp.Diff(k, must(db.APIKeyByPrefix(ctx, "abcdefgh"))(t)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]auth.APIKey{l, k}, must(db.APIKeys(ctx, ""))(t)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]auth.APIKey{k}, must(db.APIKeys(ctx, u.ID))(t)); d != "" {
			t.Error(d)
		}
		at := now()
		for _, when := range []time.Time{at, at.Add(time.Hour)} {
			if err := db.RevokeAPIKey(ctx, k.ID, when); err != nil {
				t.Error(err)
			}
		}
		if got := must(db.APIKeyByPrefix(ctx, "abcdefgh"))(t); got.RevokedAt == nil || !got.RevokedAt.Equal(at) {
			t.Errorf("%+v", got)
		}
		if err := second(db.CreateUser(ctx, newUser("u"))); !errors.Is(err, auth.ErrNameUsed) {
			t.Error(err)
		}
		if second(db.CreateAPIKey(ctx, auth.APIKey{UserID: u.ID, Prefix: "abcdefgh"})) == nil {
			t.Error("a prefix was used twice")
		}
		for name, err := range map[string]error{
			"user": second(db.User(ctx, "none")), "name": second(db.UserByName(ctx, "none")), "prefix": second(db.APIKeyByPrefix(ctx, "none")),
			"key's user": second(db.CreateAPIKey(ctx, auth.APIKey{UserID: "none", Prefix: "x"})), "revoke": db.RevokeAPIKey(ctx, "none", at),
		} {
			if !errors.Is(err, auth.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestSettings(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		if v := must(db.Setting(ctx, "none"))(t); v != "" {
			t.Error(v)
		}
		for _, v := range []string{"a", "b"} {
			if err := db.SetSetting(ctx, "key", v); err != nil || must(db.Setting(ctx, "key"))(t) != v {
				t.Error(err)
			}
		}
		var wg sync.WaitGroup
		got := make([]string, 8)
		for i := range got {
			wg.Go(func() { got[i] = must(db.EnsureSetting(ctx, SettingInstallation, newID()))(t) })
		}
		wg.Wait()
		for _, v := range got {
			if v == "" || v != got[0] {
				t.Error("several installation ids:", got)
			}
		}
		if err := db.SetSetting(ctx, SettingDefaultCluster, "none"); !errors.Is(err, cluster.ErrNotFound) {
			t.Error(err)
		}
		if err := db.SetSetting(ctx, SettingDefaultCluster, ""); err != nil || must(db.DefaultCluster(ctx))(t) != "" {
			t.Error(err)
		}
		if es := must(db.Events(ctx, EventFilter{}))(t); len(es) != 1 || es[0].Kind != event.ClusterChanged {
			t.Errorf("%+v", es)
		}
	})
}
