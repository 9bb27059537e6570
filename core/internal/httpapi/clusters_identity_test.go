package httpapi_test

import (
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// shows is the report of a cluster whose account sees these UIDs, of kube-system and of the job namespace.
func shows(system, namespace string) cluster.Report {
	r := good(system)
	if r.NamespaceUID = namespace; system == "" {
		r.Identity = namespace
	}
	return r
}

// A PATCH never leads to another cluster unless an admin has said so; what stays open is said.
func TestPatchAndIdentity(t *testing.T) {
	const hidden = "nobody can say whether it is the same one"
	for name, test := range map[string]struct {
		before, after cluster.Report
		twin          *cluster.Report // of another entry that is there already
		code          string          // of the refusal; empty: none
		warns         string
		keeps, takes  string // the identities that are known without and with a confirmation
	}{
		"the same": {before: shows("K", "N"), after: shows("K", "N"), keeps: "K N", takes: "K N"},
		"kube-system is hidden now": {
			before: shows("K", "N"), after: shows("", "N"), keeps: "K N", takes: "K N",
		},
		"another": {
			before: shows("K", "N"), after: shows("K2", "N2"), code: "identity_changed", keeps: "K N", takes: "K2 N2",
		},
		"another, by the namespace": {
			before: shows("", "N"), after: shows("", "N2"), code: "identity_changed", keeps: "N", takes: "N2",
		},
		"nothing is seen": {
			before: shows("K", "N"), after: shows("", ""), warns: hidden, keeps: "K N", takes: "",
		},
		"nothing that was known is seen": {
			before: shows("K", ""), after: shows("", "N"), warns: hidden, keeps: "K", takes: "N",
		},
		"nothing that was known is seen, but another entry is": {
			before: shows("K", ""), after: shows("", "N2"), twin: new(shows("K2", "N2")), code: "identity_in_use", keeps: "K", takes: "N2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.twin != nil {
				w.fake().finds(*test.twin)
				w.added("twin")
			}
			w.fake().finds(test.before)
			c := w.added("c")
			w.fake().finds(test.after)
			for _, confirmed := range []bool{false, true} {
				query, status, want := "", 200, test.keeps
				if confirmed {
					query, want = "?confirm_identity=true", test.takes
				} else if test.code != "" {
					status = 409
				}
				config := `{"token":"new` + query + `"}`
				a := w.do("PATCH", clusters+"/c"+query, object{"provider_config": object{"token": "new" + query}})
				if a.status != status || status == 409 && a.problem().Code != test.code {
					t.Fatalf("%q: %d %s", query, a.status, a.body)
				}
				now, err := w.db.Cluster(t.Context(), c.ID)
				if err != nil {
					t.Fatal(err)
				}
				if got := now.Observed.Identities(); got != want {
					t.Errorf("%q: known by %q, want %q", query, got, want)
				}
				if stored := strings.ReplaceAll(string(now.ProviderConfig), " ", "") == config; stored != (status == 200) {
					t.Errorf("%q: the config is %s", query, now.ProviderConfig)
				}
				if warned := strings.Contains(string(a.body), hidden); warned != (test.warns != "" && !confirmed) {
					t.Errorf("%q: %s", query, a.body)
				}
			}
		})
	}
}
