package kubeconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig/corpus"
)

var places = corpus.Places{Canary: "/tmp/nagelfluh-canary", Listener: "127.0.0.1:1"}

// TestCorpus replays the corpus: every text is refused for its reasons, in its fields, with its remedies, and no message
// quotes a secret.
func TestCorpus(t *testing.T) {
	cases, err := corpus.Cases(places)
	if err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for _, c := range cases {
		if len(c.Problems) > 0 {
			refusals++
		}
		t.Run(c.Name, func(t *testing.T) {
			r, err := kubeconfig.Rebuild(c.Text, c.Options)
			if len(c.Problems) == 0 {
				accepted(t, c, r, err)
				return
			}
			var refusal *kubeconfig.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("accepted: %s", r.YAML)
			}
			if strings.Contains(err.Error(), corpus.Marker) {
				t.Errorf("a secret is quoted: %v", err)
			}
			if len(refusal.All) != len(c.Problems) {
				t.Fatalf("%d problems, want %d: %v", len(refusal.All), len(c.Problems), err)
			}
			for i, want := range c.Problems {
				got := refusal.All[i]
				if got.Class != want.Class || want.FieldPrefix == "" && got.Field != want.Field || !strings.HasPrefix(got.Field, want.FieldPrefix) ||
					want.Remedy == "" || !strings.Contains(got.Remedy, want.Remedy) {
					t.Errorf("got %s, %s; want %+v", got.Class, got, want)
				}
				if want.Line > 0 && (got.Line != want.Line || got.Column != want.Column) {
					t.Errorf("at line %d, column %d; want %d and %d", got.Line, got.Column, want.Line, want.Column)
				}
				if i := strings.IndexByte(got.Field, '['); i > 0 && got.Line == 0 {
					t.Errorf("%s: no line", got.Field)
				}
			}
		})
	}
	if refusals < 60 {
		t.Errorf("%d texts are to be refused, want at least 60", refusals)
	}
	names, err := corpus.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(cases, func(c corpus.Case) bool { return c.Name == name }) {
			t.Errorf("%s is not in the index", name)
		}
	}
}

func accepted(t *testing.T, c corpus.Case, r kubeconfig.Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Warnings, " "); !strings.Contains(got, c.Warning) || (c.Warning == "") != (got == "") {
		t.Errorf("warnings %q, want %q", got, c.Warning)
	}
	for _, word := range []string{"exec", "auth-provider", "tokenFile", "certificate-authority:", "client-certificate:", "client-key:", "username", "password", places.Canary} {
		if strings.Contains(string(r.YAML), word) {
			t.Errorf("the result holds %s:\n%s", word, r.YAML)
		}
	}
}
