package store

import (
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// What a cluster is known by, as the store keeps it: made known with the row, by the monitor, by an admin.
func TestClusterIdentity(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		c := must(db.CreateCluster(ctx, cluster.Cluster{Name: "c", Type: "t", Observed: cluster.Observed{Identity: "K", NamespaceUID: "N"}}))(t)
		is := func(what, identity, namespace string) {
			t.Helper()
			if o := must(db.Cluster(ctx, c.ID))(t).Observed; o.Identity != identity || o.NamespaceUID != namespace {
				t.Errorf("%s: known by %q and %q, want %q and %q", what, o.Identity, o.NamespaceUID, identity, namespace)
			}
		}
		see := func(identity, namespace string) {
			t.Helper()
			if err := db.Observe(ctx, c.ID, cluster.Observed{Health: cluster.Ready, Identity: identity, NamespaceUID: namespace}); err != nil {
				t.Fatal(err)
			}
		}
		edit := func(f func(*cluster.Cluster)) {
			t.Helper()
			must(db.UpdateCluster(ctx, c.ID, nil, func(c *cluster.Cluster) error { f(c); return nil }))(t)
		}
		confirm := func(identity, namespace string) {
			t.Helper()
			edit(func(c *cluster.Cluster) { c.Observed.Identity, c.Observed.NamespaceUID = identity, namespace })
		}
		is("new", "K", "N")
		see("K", "N2")
		is("the namespace was made anew", "K", "N2")
		confirm("K2", "")
		is("another one was confirmed", "K2", "")
		see("K", "N2")
		is("the monitor was still at the one before", "K2", "")
		see("K2", "N3")
		is("the monitor has seen it", "K2", "N3")

		confirm("N4", "N4")
		see("K4", "N4")
		is("the account has come to see kube-system", "K4", "N4")
		see("N4", "N4")
		is("and sees it no longer", "K4", "N4")

		edit(func(c *cluster.Cluster) { c.Namespace = "other" })
		is("in another namespace", "K4", "")
		edit(func(c *cluster.Cluster) {
			c.Namespace, c.Observed.Identity, c.Observed.NamespaceUID = "third", "N5", "N5"
		})
		is("in another namespace of another cluster", "N5", "N5")
		edit(func(c *cluster.Cluster) { c.Namespace = "fourth" })
		is("known by the namespace of before", "", "")
	})
}
