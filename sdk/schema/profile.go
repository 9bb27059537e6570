package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/field"
)

const (
	// MaxBytes bounds the size of a schema.
	MaxBytes = 64 << 10
	// MaxDepth bounds how deep objects and arrays nest.
	MaxDepth = 8
	// Dialect is the only "$schema" that is accepted; leaving it out means the same.
	Dialect = "https://json-schema.org/draft/2020-12/schema"
)

// formats are the string formats of the profile; every one is asserted.
var formats = []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}

// common are the keywords that every schema object may have.
var common = []string{"type", "title", "description", "default", "examples", "enum", "const", "deprecated", "$comment"}

// keywords are those of each type beside the common ones.
var keywords = map[string][]string{
	"string":  {"minLength", "maxLength", "pattern", "format", SecretKeyword, TextareaKeyword, HelpCommandKeyword},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"boolean": nil,
	"array":   {"items", "minItems", "maxItems", "uniqueItems"},
	"object":  {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
}

// profile checks one schema object and those inside it. Messages name the place as a JSON pointer into the schema.
func profile(node map[string]any, path []string, depth int, errs *field.Errors) {
	at := field.Pointer(path...)
	if depth > MaxDepth {
		errs.Add(at, "nests deeper than %d", MaxDepth)
		return
	}
	types := typesOf(node["type"])
	if types == nil {
		errs.Add(at, `needs a "type": one of %s, or ["string", "object"] for text that may also be given as a mapping`,
			strings.Join(slices.Sorted(maps.Keys(keywords)), ", "))
		return
	}
	if depth == 0 && !slices.Equal(types, []string{"object"}) {
		errs.Add(at, `must have "type": "object", because a config is an object`)
	}
	for _, key := range slices.Sorted(maps.Keys(node)) {
		if allowed(key, types, depth) {
			continue
		}
		errs.Add(field.Pointer(append(slices.Clone(path), key)...), "is not in the profile for the type %s", strings.Join(types, " or "))
	}
	if dialect, ok := node["$schema"]; ok && dialect != Dialect {
		errs.Add(at, "has another $schema than %s", Dialect)
	}
	text(node, at, errs)
	for name, inner := range children(node) {
		sub, ok := inner.(map[string]any)
		if !ok {
			errs.Add(field.Pointer(append(slices.Clone(path), name...)...), "must be a schema object")
			continue
		}
		profile(sub, append(slices.Clone(path), name...), depth+1, errs)
	}
}

// text checks the keywords of strings.
func text(node map[string]any, at string, errs *field.Errors) {
	if pattern, ok := node["pattern"].(string); ok {
		if _, err := regexp.Compile(pattern); err != nil {
			errs.Add(at, "has a pattern that is not RE2: %v", err)
		}
	}
	if format, ok := node["format"].(string); ok && !slices.Contains(formats, format) {
		errs.Add(at, "has the format %q; the profile knows %s", format, strings.Join(formats, ", "))
	}
	for _, flag := range []string{SecretKeyword, TextareaKeyword} {
		if value, ok := node[flag]; ok {
			if _, isBool := value.(bool); !isBool {
				errs.Add(at, "%s must be true or false", flag)
			}
		}
	}
	if command, ok := node[HelpCommandKeyword]; ok {
		if _, isText := command.(string); !isText {
			errs.Add(at, "%s must be a string", HelpCommandKeyword)
		}
	}
	if node[SecretKeyword] == true {
		for _, key := range []string{"default", "examples", "enum", "const"} {
			if _, ok := node[key]; ok {
				errs.Add(at, "is a secret and so cannot have %q", key)
			}
		}
	}
}

// typesOf reads "type": one name, or the pair of text and mapping. It returns nil for anything else.
func typesOf(value any) []string {
	switch v := value.(type) {
	case string:
		if _, ok := keywords[v]; ok {
			return []string{v}
		}
	case []any:
		if len(v) == 2 && v[0] == "string" && v[1] == "object" {
			return []string{"string", "object"}
		}
	}
	return nil
}

func allowed(key string, types []string, depth int) bool {
	if slices.Contains(common, key) || (depth == 0 && (key == "$schema" || key == "$id")) {
		return true
	}
	for _, t := range types {
		if slices.Contains(keywords[t], key) {
			return true
		}
	}
	return false
}

// children returns the schema objects inside a node by their path from it.
func children(node map[string]any) func(yield func([]string, any) bool) {
	return func(yield func([]string, any) bool) {
		if properties, ok := node["properties"].(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(properties)) {
				if !yield([]string{"properties", name}, properties[name]) {
					return
				}
			}
		}
		if items, ok := node["items"]; ok && !yield([]string{"items"}, items) {
			return
		}
		if extra, ok := node["additionalProperties"]; ok {
			if _, isBool := extra.(bool); !isBool {
				yield([]string{"additionalProperties"}, extra)
			}
		}
	}
}

// parse reads a schema into plain values and holds it against the profile.
func parse(raw []byte) (map[string]any, error) {
	if len(raw) > MaxBytes {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(raw), MaxBytes)
	}
	var node map[string]any
	if err := json.Unmarshal(raw, &node); err != nil {
		return nil, fmt.Errorf("the schema is not a JSON object: %w", err)
	}
	var errs field.Errors
	profile(node, nil, 0, &errs)
	if err := errs.Err(); err != nil {
		return nil, fmt.Errorf("the schema is outside of the profile: %w", err)
	}
	return node, nil
}
