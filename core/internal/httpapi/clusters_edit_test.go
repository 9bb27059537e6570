package httpapi_test

import (
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

func TestClusterNameAndRuntime(t *testing.T) {
	w := newWorld(t)
	body := fakeCluster("  spaced ")
	body["max_runtime_seconds"] = nil
	c := must[struct{ Name string }](w, w.do("POST", clusters, body), 201)
	if c.Name != "spaced" {
		t.Errorf("name %q", c.Name)
	}
	type limited struct {
		Max *int64 `json:"max_runtime_seconds"`
	}
	for _, bad := range []any{0, -1, 1.5, "60", 1 << 40} {
		if a := w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": bad}); a.status != 422 {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	if a := w.do("PATCH", clusters+"/spaced", object{"name": "   "}); a.status != 422 || a.problem().Errors[0].Field != "name" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": 60}), 200); got.Max == nil || *got.Max != 60 {
		t.Errorf("got %+v", got)
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"sort_order": 1}), 200); got.Max == nil {
		t.Error("what is not sent is not touched")
	}
	if got := must[limited](w, w.do("PATCH", clusters+"/spaced", object{"max_runtime_seconds": nil}), 200); got.Max != nil {
		t.Errorf("null takes the limit away: %+v", got)
	}
}

func TestCordon(t *testing.T) {
	w := newWorld(t)
	w.added("c")
	type cordoned struct {
		Cordon *struct {
			By, Reason string
			At         time.Time
		}
	}
	first := must[cordoned](w, w.do("PUT", clusters+"/c/cordon", object{"reason": "disks"}), 200)
	if first.Cordon == nil || first.Cordon.Reason != "disks" || first.Cordon.By == "" || first.Cordon.At.IsZero() {
		t.Fatalf("got %+v", first)
	}
	if again := must[cordoned](w, w.do("PUT", clusters+"/c/cordon", object{"reason": "fans"}), 200); again.Cordon.Reason != "fans" || !again.Cordon.At.Equal(first.Cordon.At) {
		t.Errorf("it holds since the first time: %+v", again)
	}
	choices := must[struct{ Items []struct{ Name string } }](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200)
	for _, c := range choices.Items {
		if c.Name == "c" {
			t.Error("a cordoned cluster is among the choices")
		}
	}
	if c := must[cordoned](w, w.do("DELETE", clusters+"/c/cordon", nil), 200); c.Cordon != nil {
		t.Errorf("got %+v", c)
	}
	if a := w.do("PUT", clusters+"/moon/cordon", object{}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	c := w.added("c")
	if a := w.do("POST", clusters+"/c/take-over", nil); a.problem().Code != "invalid" {
		t.Errorf("nothing to take over: %d %s", a.status, a.body)
	}
	held := &cluster.ForeignLease{Namespace: "jobs", Holder: "stranger", Writer: "w", Message: "It is held.", Since: time.Now().UTC()}
	if _, err := w.db.UpdateCluster(t.Context(), c.ID, nil, func(c *cluster.Cluster) error { c.Lease = held; return nil }); err != nil {
		t.Fatal(err)
	}
	type leased struct {
		Lease struct {
			Holder, Message string
			ConfirmedBy     string    `json:"confirmed_by"`
			ConfirmedAt     time.Time `json:"confirmed_at"`
		}
	}
	if got := must[leased](w, w.do("GET", clusters+"/c", nil), 200).Lease; got.Holder != "stranger" || got.Message != "It is held." || got.ConfirmedBy != "" {
		t.Errorf("before: %+v", got)
	}
	first := must[leased](w, w.do("POST", clusters+"/c/take-over", nil), 200).Lease
	if first.ConfirmedBy == "" || first.ConfirmedAt.IsZero() {
		t.Errorf("after: %+v", first)
	}
	if again := must[leased](w, w.do("POST", clusters+"/c/take-over", nil), 200).Lease; again != first {
		t.Errorf("confirmed twice: %+v", again)
	}
}
