// Package name judges the names that people give: where an id may stand as well, one must not be taken for the other, and no two
// that look alike may differ by what nobody sees.
package name

import (
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// Fault says what is wrong with a name, as what follows the word "name"; empty: nothing. ids are those of the kind of thing
// that are no UUIDs.
func Fault(s string, ids ...string) string {
	switch {
	case s == "." || s == "..":
		return `is "` + s + `", which stands for something else in addresses`
	case strings.ContainsFunc(s, hidden):
		return "has an invisible character in it"
	case uuid.Validate(s) == nil || slices.Contains(ids, s):
		return "looks like an id: commands could mean another one by it"
	}
	return ""
}

// invisible are letters and marks that show nothing, beside the formatting characters.
const invisible = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"

func hidden(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector) || strings.ContainsRune(invisible, r)
}
