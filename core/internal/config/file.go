package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nagelfluh/nagelfluh/core/internal/yamldoc"
)

// readFile takes the YAML file; unknown and doubled keys are errors.
func (c *Config) readFile(path string, all []setting) (errs []error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("read the configuration: %w", err)}
	}
	// Settings are text that each setting reads for itself; what is for plugins is JSON.
	doc, err := yamldoc.Decode(raw, func(at []string, _, _ string) bool { return at[0] != "plugins" })
	if err != nil {
		return []error{fmt.Errorf("configuration %s is not valid YAML: %w", path, err)}
	}
	tree, isMap := doc.(map[string]any)
	if doc != nil && !isMap {
		return []error{fmt.Errorf("configuration %s is no mapping of settings", path)}
	}
	byKey := map[string]setting{}
	groups := map[string]bool{}
	for _, s := range all {
		byKey[s.key] = s
		if group, _, nested := strings.Cut(s.key, "."); nested {
			groups[group] = true
		}
	}
	var walk func(prefix string, tree map[string]any)
	walk = func(prefix string, tree map[string]any) {
		for _, name := range sortedKeys(tree) {
			key := prefix + name
			below, isMap := tree[name].(map[string]any)
			s, known := byKey[key]
			switch {
			case known:
				if err := s.value.decode(tree[name]); err != nil {
					errs = append(errs, fmt.Errorf("%s in %s: %w", key, path, err))
				}
				c.Sources[key] = "file " + path
			case prefix == "" && groups[name] && (isMap || tree[name] == nil):
				walk(key+".", below)
			default:
				errs = append(errs, fmt.Errorf("%s in %s is no setting%s", key, path, suggest(key, byKey)))
			}
		}
	}
	walk("", tree)
	return errs
}

// suggest names the setting that was probably meant.
func suggest(key string, byKey map[string]setting) string {
	best, least := "", 4
	for _, k := range sortedKeys(byKey) {
		if d := distance(key, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return "; `nagelfluh config show` lists them all"
	}
	return fmt.Sprintf("; is %s meant?", best)
}

// distance is the number of edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
