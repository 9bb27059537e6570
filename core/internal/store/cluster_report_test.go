package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestLastTestBelongsToAConfig(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		r := cluster.Report{Class: "timeout", Message: "m", Phases: []cluster.Phase{{Name: "connect"}}, TestedAt: time.Now().UTC().Truncate(time.Microsecond)}
		if got, err := db.LastTest(ctx, cluster.DefaultID, 1); err != nil || got != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, class := range []string{"timeout", "tls"} { // the second takes the place of the first
			r.Class = class
			if err := db.SetLastTest(ctx, cluster.DefaultID, 1, r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := db.LastTest(ctx, cluster.DefaultID, 1)
		if err != nil || got == nil || cmp.Diff(r, *got) != "" {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := db.LastTest(ctx, cluster.DefaultID, 2); err != nil || got != nil {
			t.Errorf("that of another config: %+v, %v", got, err)
		}
		if err := db.SetLastTest(ctx, "moon", 1, r); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}

func TestIdentityStaysWhileAttemptsLive(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c, err := db.CreateCluster(ctx, cluster.Cluster{Name: "c", Type: "t", Active: true, Observed: cluster.Observed{Identity: "one"}})
		if err != nil || c.Observed.Identity != "one" {
			t.Fatalf("%+v, %v", c.Observed, err)
		}
		identify := func(as string) error {
			_, err := db.UpdateCluster(ctx, c.ID, nil, func(c *cluster.Cluster) error { c.Observed.Identity = as; return nil })
			return err
		}
		vs, _, err := db.Submit(ctx, projectID, []process.NewVersion{newVersion("p")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.UpdateAttempt(ctx, vs[0].Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ClusterID = process.Creating, c.ID
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := identify("two"); !errors.Is(err, cluster.ErrInUse) {
			t.Errorf("%v", err)
		}
		if n, err := db.LiveStatesOn(ctx, c.ID); err != nil || cmp.Diff(map[string]int32{"creating": 1}, n) != "" {
			t.Errorf("%v, %v", n, err)
		}
		if _, err := db.UpdateAttempt(ctx, vs[0].Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.State = process.Unknown
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := identify("two"); err != nil {
			t.Fatal(err)
		}
		if now, err := db.Cluster(ctx, c.ID); err != nil || now.Observed.Identity != "two" {
			t.Errorf("%+v, %v", now.Observed, err)
		}
	})
}
