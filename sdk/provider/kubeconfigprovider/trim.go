package kubeconfigprovider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/field"
)

// MaxBytes bounds a kubeconfig: the contract's limit.
const MaxBytes = 1 << 20

// The fields of [Config], as paths of errors.
const (
	atKubeconfig = "/kubeconfig"
	atContext    = "/context"
)

// Trim reads a kubeconfig, YAML or JSON, and returns it as canonical JSON with one context, its cluster and its user. An
// empty context means the current one, or the only one. Trimming the result again gives the same bytes. Errors name
// contexts, clusters and users, but never show other content. What is no part of a kubeconfig is kept: the core judges it.
func Trim(text []byte, context string) ([]byte, field.Errors) {
	doc, problem := parse(text)
	if problem != "" {
		return nil, field.Errorf(atKubeconfig, "%s", problem)
	}
	if kind, given := doc["kind"]; given && kind != "Config" {
		return nil, field.Errorf(atKubeconfig, "This is another kind of document than a kubeconfig (kind: Config).")
	}
	chosen, errs := choose(doc, context)
	if errs != nil {
		return nil, errs
	}
	entry, errs := entryOf(doc, "contexts", "context", chosen)
	if errs != nil {
		return nil, errs
	}
	trimmed := map[string]any{"apiVersion": "v1"}
	for key, value := range doc {
		if key != "clusters" && key != "users" && key != "preferences" && key != "extensions" {
			trimmed[key] = value
		}
	}
	trimmed["kind"], trimmed["current-context"], trimmed["contexts"] = "Config", chosen, []any{entry}
	inner, _ := entry["context"].(map[string]any)
	for _, part := range []struct{ key, list string }{{"cluster", "clusters"}, {"user", "users"}} {
		name, _ := inner[part.key].(string)
		if name == "" {
			if part.key == "user" {
				continue // a cluster without credentials is odd, but the connection test says so better
			}
			return nil, field.Errorf(atKubeconfig, "The context %q names no cluster.", chosen)
		}
		found, errs := entryOf(doc, part.list, part.key, name)
		if errs != nil {
			return nil, errs
		}
		trimmed[part.list] = []any{found}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(trimmed); err != nil {
		return nil, field.Errorf(atKubeconfig, "The kubeconfig cannot be written as JSON.")
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// choose returns the name of the context to use.
func choose(doc map[string]any, asked string) (string, field.Errors) {
	names := namesOf(doc, "contexts")
	if len(names) == 0 {
		return "", field.Errorf(atKubeconfig, "The kubeconfig holds no context.")
	}
	if asked != "" {
		return asked, nil
	}
	if current, _ := doc["current-context"].(string); current != "" {
		return current, nil
	}
	if len(names) == 1 {
		return names[0], nil
	}
	return "", field.Errorf(atContext, "The kubeconfig has no current context; choose one of %s.", quoted(names))
}

// entryOf returns the one named entry of a list.
func entryOf(doc map[string]any, list, key, name string) (map[string]any, field.Errors) {
	var found []map[string]any
	for _, entry := range entries(doc, list) {
		if entry["name"] == name {
			found = append(found, entry)
		}
	}
	at := atKubeconfig
	if list == "contexts" {
		at = atContext
	}
	switch {
	case len(found) == 0:
		return nil, field.Errorf(at, "The kubeconfig has no %s %q; it has %s.", key, name, quoted(namesOf(doc, list)))
	case len(found) > 1:
		return nil, field.Errorf(at, "The kubeconfig has the %s %q more than once; remove all but one.", key, name)
	}
	if _, ok := found[0][key].(map[string]any); !ok {
		return nil, field.Errorf(at, "The %s %q of the kubeconfig is empty.", key, name)
	}
	return found[0], nil
}

func entries(doc map[string]any, list string) []map[string]any {
	items, _ := doc[list].([]any)
	var out []map[string]any
	for _, item := range items {
		if entry, ok := item.(map[string]any); ok {
			out = append(out, entry)
		}
	}
	return out
}

func namesOf(doc map[string]any, list string) []string {
	var names []string
	for _, entry := range entries(doc, list) {
		if name, ok := entry["name"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// quoted lists some names for an error.
func quoted(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	parts := make([]string, 0, most+1)
	for i, name := range names {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%q", name))
	}
	return strings.Join(parts, ", ")
}
