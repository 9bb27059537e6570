package permission

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table into the documentation")

const (
	page  = "../../../docs/operations/permissions.md"
	begin = "<!-- table -->\n\n"
	end   = "\n<!-- end of table -->"
)

// The page holds the table as it is here; `go test ./internal/permission -write` brings it there.
func TestDocumentation(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), begin)
	table, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no marked table", page)
	}
	if *write {
		if err := os.WriteFile(page, []byte(before+begin+Markdown()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != Markdown() {
		t.Errorf("%s does not hold the table; want\n%s", page, Markdown())
	}
	for _, r := range Table() {
		if r.Need == Essential && r.Scope != JobNamespace {
			t.Errorf("%s: an account that is bound to a namespace must be able to run Jobs", r.Resource)
		}
	}
}

func TestChecks(t *testing.T) {
	own := func(user string) (out []Check) {
		for _, c := range Checks("jobs", user) {
			if c.Scope == Own {
				out = append(out, c)
			}
		}
		return out
	}
	if got := own("system:serviceaccount:ns:runner"); len(got) != 1 || got[0].Namespace != "ns" || got[0].Name != "runner" {
		t.Errorf("a ServiceAccount: %+v", got)
	}
	for _, user := range []string{"", "worker", "system:serviceaccount:", "x:y"} {
		if got := own(user); len(got) != 0 {
			t.Errorf("%q: %+v", user, got)
		}
	}
	first := Checks("jobs", "")[0]
	if first.Verb != "create" || first.Resource != "jobs" || first.Namespace != "jobs" || first.Name != "" {
		t.Errorf("first: %+v", first)
	}
	if resource, sub := (Rule{Resource: "pods/log"}).Split(); resource != "pods" || sub != "log" {
		t.Errorf("%s, %s", resource, sub)
	}
}
