package reason

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reasons.md")

const page = "../../../docs/reasons.md"

func render() string {
	var b strings.Builder
	b.WriteString(`# Reason codes

<!-- Generated from core/internal/reason; do not edit. -->

` + "`reason_code`" + ` of an attempt is one of these words; ` + "`reason`" + ` beside it is a sentence with the details. *Class* says whose doing a failure is: the user's, that
is of what was submitted, or the infrastructure's, that is of the cluster or of somebody with access to it. After a failure that is *tried again* a new attempt
follows by itself, as often as ` + "`spec.infrastructure_retries`" + ` allows; it eats none of ` + "`spec.retries`" + `.

| code | meaning | class | tried again | what to do |
| --- | --- | --- | --- | --- |
`)
	for _, r := range All() {
		again := ""
		if r.Retried {
			again = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Code, r.Meaning, r.Class, again, r.Remedy)
	}
	return b.String()
}

func TestReasonsDocIsGenerated(t *testing.T) {
	if *update {
		if err := os.WriteFile(page, []byte(render()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != render() {
		t.Error("docs/reasons.md is not what the table says: go test ./internal/reason -update")
	}
}

// Every code that the packages define is in the table, once, and the table has no other.
func TestTableHasEveryCode(t *testing.T) {
	used := map[string]bool{"cancel-requested": true, "cancelled": true} // the store's
	for _, c := range []struct{ files, prefix string }{
		{"../evidence/reason.go", ""}, {"../dispatch/*.go", "reason"}, {"../placement/chain.go", "Code"},
	} {
		files, err := filepath.Glob(c.files)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", c.files, err)
		}
		for _, file := range files {
			for _, code := range constants(t, file, c.prefix) {
				used[code] = true
			}
		}
	}
	if len(used) < 40 {
		t.Errorf("only %d codes found", len(used))
	}
	known := map[string]bool{}
	for _, r := range All() {
		if known[r.Code] {
			t.Errorf("%s is there twice", r.Code)
		}
		known[r.Code] = true
		if !used[r.Code] {
			t.Errorf("nobody says %s", r.Code)
		}
		if r.Retried && r.Class != Infrastructure {
			t.Errorf("%s is the user's and tried again", r.Code)
		}
	}
	for code := range used {
		if !known[code] {
			t.Errorf("%s is not in the table", code)
		}
	}
}

// constants are the values of the text constants whose name has the prefix.
func constants(t *testing.T, file, prefix string) (out []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			for i, value := range v.Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(v.Names[i].Name, prefix) {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, text)
				}
			}
		}
	}
	return out
}
