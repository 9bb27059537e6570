package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// marker is planted in secret fields; it must come back nowhere.
const marker = "planted-secret-4f1d9a"

// document is an input and what is wrong with it.
type document struct {
	what string
	json []byte
}

// garbage returns documents that do not pass a schema, most of them with planted secrets. A nil schema takes nothing.
func garbage(compiled *schema.Schema, raw []byte, valid string) []document {
	out := []document{
		{"is no JSON", []byte(`{"` + marker)},
		{"is no object", []byte(`["` + marker + `"]`)},
	}
	base := planted(raw, valid)
	with := func(what, name string, value any) {
		changed := maps.Clone(base)
		changed[name] = value
		out = append(out, document{what, encode(changed)})
	}
	with("has an unknown field", "conformance-unknown", true)
	for _, name := range properties(raw) {
		with(fmt.Sprintf("has a wrong type in %q", name), name, []any{[]any{map[string]any{"nobody": marker}}})
		if _, present := base[name]; present {
			changed := maps.Clone(base)
			delete(changed, name)
			out = append(out, document{fmt.Sprintf("lacks %q", name), encode(changed)})
		}
	}
	// What the schema allows is no garbage.
	return slices.DeleteFunc(out, func(d document) bool {
		if compiled == nil {
			return false
		}
		_, errs := compiled.Check(d.json)
		return len(errs) == 0
	})
}

// planted returns the valid document with the marker in each secret field at its top level, whether or not that still
// makes sense to the plugin.
func planted(raw []byte, valid string) map[string]any {
	base := map[string]any{}
	if json.Unmarshal([]byte(valid), &base) != nil || base == nil {
		base = map[string]any{}
	}
	for _, path := range secretPaths(raw) {
		plant(base, strings.Split(strings.TrimPrefix(path, "/"), "/"))
	}
	return base
}

// plant sets the field at a path; array items and mappings are left alone.
func plant(object map[string]any, path []string) {
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	if name == "*" {
		return
	}
	if len(path) == 1 {
		object[name] = marker
		return
	}
	inner, ok := object[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
	}
	inner = maps.Clone(inner)
	plant(inner, path[1:])
	object[name] = inner
}

func secretPaths(raw []byte) []string {
	compiled, err := schema.Compile(raw)
	if err != nil {
		return nil
	}
	return compiled.Secrets()
}

// properties returns the names at the schema's top level.
func properties(raw []byte) []string {
	var node struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(raw, &node) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(node.Properties))
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return raw
}
