package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/nagelfluh/nagelfluh/sdk/field"
)

// Schema is a compiled schema within the profile. It is safe for concurrent use.
type Schema struct {
	node     map[string]any
	compiled *jsonschema.Schema
}

// Compile reads a schema and holds it against the profile, which is part of JSON Schema draft 2020-12: the types object,
// array, string, integer, number and boolean; the pair ["string", "object"] for text that may also be given as a mapping;
// enum, const, default and the usual bounds; RE2 patterns; a list of string formats; our own keywords. No references, no
// combinations, at most 64 KiB and 8 levels.
func Compile(raw []byte) (*Schema, error) {
	node, err := parse(raw)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	// An id of the author's would become the base of nothing: the profile has no references.
	if object, ok := doc.(map[string]any); ok {
		delete(object, "$id")
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	const location = "schema:config"
	if err := compiler.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("the schema is not valid: %w", err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("the schema is not valid: %w", err)
	}
	s := &Schema{node: node, compiled: compiled}
	if err := s.defaults(node, compiled); err != nil {
		return nil, err
	}
	return s, nil
}

// noLoader refuses to fetch anything.
type noLoader struct{}

// Load always fails.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("schemas are not fetched from anywhere")
}

// defaults checks that each default passes the schema beside it.
func (s *Schema) defaults(node map[string]any, compiled *jsonschema.Schema) error {
	if compiled == nil {
		return nil
	}
	if value, ok := node["default"]; ok {
		if err := compiled.Validate(value); err != nil {
			return fmt.Errorf("the default of %s does not pass its own schema", compiled.Location)
		}
	}
	if properties, ok := node["properties"].(map[string]any); ok {
		for name, inner := range properties {
			if err := s.defaults(inner.(map[string]any), compiled.Properties[name]); err != nil {
				return err
			}
		}
	}
	if items, ok := node["items"].(map[string]any); ok {
		return s.defaults(items, compiled.Items2020)
	}
	return nil
}

// Check validates a config and returns it with the defaults filled in. Errors hold paths and rules, never values.
func (s *Schema) Check(config []byte) ([]byte, field.Errors) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	object, ok := value.(map[string]any)
	if err != nil || !ok {
		return nil, field.Errorf("", "The config is not a JSON object.")
	}
	fill(s.node, object)
	if err := s.compiled.Validate(object); err != nil {
		var failed *jsonschema.ValidationError
		if !errors.As(err, &failed) {
			return nil, field.Errorf("", "The config cannot be checked against its schema.")
		}
		var errs field.Errors
		explain(failed, &errs)
		return nil, errs
	}
	filled, err := json.Marshal(object)
	if err != nil {
		return nil, field.Errorf("", "The config cannot be written as JSON.")
	}
	return filled, nil
}

// Secrets returns the JSON pointers of the secret fields, with "*" for every item of an array or mapping.
func (s *Schema) Secrets() []string { return secrets(s.node, nil) }

func secrets(node map[string]any, path []string) []string {
	var found []string
	if node[SecretKeyword] == true {
		found = append(found, field.Pointer(path...))
	}
	for name, inner := range children(node) {
		step := "*"
		if name[0] == "properties" {
			step = name[1]
		}
		found = append(found, secrets(inner.(map[string]any), append(slices.Clone(path), step))...)
	}
	return found
}

// fill sets what is absent and has a default, also inside of objects that are present.
func fill(node, object map[string]any) {
	properties, _ := node["properties"].(map[string]any)
	for name, inner := range properties {
		sub := inner.(map[string]any)
		if _, present := object[name]; !present {
			if value, ok := sub["default"]; ok {
				object[name] = value
			}
		}
		if nested, ok := object[name].(map[string]any); ok {
			fill(sub, nested)
		}
	}
}

// explain turns the leaves of a validation error into field errors.
func explain(failed *jsonschema.ValidationError, errs *field.Errors) {
	for _, cause := range failed.Causes {
		explain(cause, errs)
	}
	if len(failed.Causes) > 0 {
		return
	}
	at := failed.InstanceLocation
	switch k := failed.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			errs.Add(field.Pointer(append(slices.Clone(at), name)...), "Required.")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			errs.Add(field.Pointer(append(slices.Clone(at), name[:min(len(name), 64)])...), "There is no such field; check its spelling.")
		}
	default:
		errs.Add(field.Pointer(at...), "%s", rule(failed.ErrorKind))
	}
}

// rule says what a value should have been.
func rule(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("Must be of type %s, not %s.", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return fmt.Sprintf("Must be one of %s.", list(k.Want))
	case *kind.Const:
		return fmt.Sprintf("Must be %s.", list([]any{k.Want}))
	case *kind.Format:
		return fmt.Sprintf("Must be a valid %s.", k.Want)
	case *kind.Pattern:
		return fmt.Sprintf("Must match the pattern %s.", k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("Must have at least %d characters.", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("Must have at most %d characters.", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("Must have at least %d items.", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("Must have at most %d items.", k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("The items %d and %d are the same.", k.Duplicates[0], k.Duplicates[1])
	case *kind.MinProperties:
		return fmt.Sprintf("Must have at least %d entries.", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("Must have at most %d entries.", k.Want)
	case *kind.Minimum:
		return "Must be at least " + number(k.Want) + "."
	case *kind.Maximum:
		return "Must be at most " + number(k.Want) + "."
	case *kind.ExclusiveMinimum:
		return "Must be more than " + number(k.Want) + "."
	case *kind.ExclusiveMaximum:
		return "Must be less than " + number(k.Want) + "."
	case *kind.MultipleOf:
		return "Must be a multiple of " + number(k.Want) + "."
	}
	return "Does not fit the schema."
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return fmt.Sprint(f)
}

func list(values []any) string {
	parts := make([]string, len(values))
	for i, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte("?")
		}
		parts[i] = string(raw)
	}
	return strings.Join(parts, ", ")
}
