package health

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// The table in the user's documentation is that of the code.
func TestDocumentedConditions(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/operations/health.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| condition | true when | false makes it |\n| --- | --- | --- |\n")
	for _, k := range cluster.ConditionKinds {
		makes := "`" + string(k.Makes) + "`"
		switch {
		case k.Type == cluster.Reachable:
			makes += ", in time `lost`"
		case k.Type == cluster.Serving:
			makes += ", in time `suspect`"
		case k.Makes == cluster.Ready:
			makes = "nothing"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", k.Type, k.Means, makes)
	}
	_, rest, _ := strings.Cut(string(raw), "<!-- table: conditions -->\n")
	got, _, _ := strings.Cut(rest, "<!-- end -->")
	if got != want.String() {
		t.Errorf("docs/operations/health.md has\n%s\nwant\n%s", got, want.String())
	}
}
