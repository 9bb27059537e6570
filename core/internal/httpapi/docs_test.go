package httpapi_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/httpapi"
)

// Every code of the API stands in the docs with its status, and no other.
func TestCodesAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	for code, status := range httpapi.Statuses {
		if !strings.Contains(doc, fmt.Sprintf("| `%s` | %d |", code, status)) {
			t.Errorf("docs/api.md lacks %s with status %d", code, status)
		}
	}
	if rows := strings.Count(doc, "\n| `"); rows != len(httpapi.Statuses) {
		t.Errorf("docs/api.md has %d codes, there are %d", rows, len(httpapi.Statuses))
	}
}
