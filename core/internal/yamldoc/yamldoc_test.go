package yamldoc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	in := "N: 1\ny: yes\ntext: {a: 0123, b: 1e3, c: true, d: ~, e: [007, no]}\nn: 0x10\nf: 1.5\nt: true\nq: '1'\nanchor: &a {x: 1}\nalias: *a\n"
	got, err := Decode([]byte(in), func(path []string, _, _ string) bool { return path[0] == "text" })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"N": 1.0, "y": "yes", "n": 16.0, "f": 1.5, "t": true, "q": "1", "anchor": map[string]any{"x": 1.0}, "alias": map[string]any{"x": 1.0},
		"text": map[string]any{"a": "0123", "b": "1e3", "c": "true", "d": nil, "e": []any{"007", "no"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRefuses(t *testing.T) {
	for in, says := range map[string]string{
		"a: 1\na: 2": "already set", "a: 1\n---\nb: 2": "more than one document", "a: [": "did not find", "? [a]\n: b": "no plain word",
		"a: &a [*a]": "nested too deeply",
		"a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]": "too large",
	} {
		if _, err := Decode([]byte(in), func([]string, string, string) bool { return false }); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if v, err := Decode(nil, nil); v != nil || err != nil {
		t.Errorf("an empty document: %v %v", v, err)
	}
}
