package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

func TestClusterHistory(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		other := must(db.CreateCluster(ctx, cluster.Cluster{Name: "other"}))(t)
		see := func(id string, h cluster.Health, reason string) {
			t.Helper()
			if err := db.Observe(ctx, id, cluster.Observed{Health: h, Reason: reason, Message: "said " + reason}); err != nil {
				t.Fatal(err)
			}
		}
		see(other.ID, cluster.Ready, "")
		see(cluster.DefaultID, cluster.Ready, "")
		see(cluster.DefaultID, cluster.Ready, "")
		see(cluster.DefaultID, cluster.Suspect, "timeout")
		see(cluster.DefaultID, cluster.Suspect, "refused")
		all := must(db.ClusterHistory(ctx, cluster.DefaultID))(t)
		var got []string
		for _, c := range all {
			if c.At.IsZero() {
				t.Error("a change without a time")
			}
			got = append(got, fmt.Sprintf("%s>%s %s/%s", c.From, c.To, c.Reason, c.Message))
		}
		want := "suspect>suspect refused/said refused, ready>suspect timeout/said timeout, unknown>ready /said "
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("got %s, want %s", s, want)
		}
		es := must(db.Events(ctx, EventFilter{Kinds: []event.Kind{event.ClusterChanged}}))(t)
		if last := es[len(es)-1]; string(last.Data) != `{"from":"suspect","reason":"refused","to":"suspect"}` {
			t.Errorf("event %+v", last)
		}

		for i := range historyKept + 5 {
			see(cluster.DefaultID, cluster.Suspect, fmt.Sprint("reason-", i))
		}
		all = must(db.ClusterHistory(ctx, cluster.DefaultID))(t)
		if len(all) != historyKept || all[0].Reason != fmt.Sprint("reason-", historyKept+4) || all[historyKept-1].Reason != "reason-5" {
			t.Errorf("%d kept, from %s to %s", len(all), all[0].Reason, all[len(all)-1].Reason)
		}
		if n := len(must(db.ClusterHistory(ctx, other.ID))(t)); n != 1 {
			t.Errorf("the other cluster has %d", n)
		}
	})
}

// The monitor fills in an identity that is not known. Which other cluster a row may stand for, an admin says.
func TestObserveKeepsAKnownIdentity(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		for _, seen := range []string{"", "one", "two", ""} {
			if err := db.Observe(t.Context(), cluster.DefaultID, cluster.Observed{Health: cluster.Ready, Identity: seen}); err != nil {
				t.Fatal(err)
			}
		}
		if got := must(db.Cluster(t.Context(), cluster.DefaultID))(t).Observed.Identity; got != "one" {
			t.Errorf("identity %q", got)
		}
	})
}
