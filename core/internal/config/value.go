package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// value is where a setting's value goes and how it is written.
type value interface {
	set(given []string) error // as environment and flags give it; nil: empty
	decode(raw any) error     // as YAML gives it
	show() any
	kind() string // for help texts; empty: a switch
}

type (
	textValue   struct{ p *string }
	choiceValue struct {
		p  *string
		of []string
	}
	booleanValue  struct{ p *bool }
	durationValue struct {
		p    *time.Duration
		zero bool
	}
	integerValue struct {
		p     *int64
		least int64
	}
	listValue    struct{ p *[]string }
	pluginsValue struct{ p *map[string]Plugin }
)

func text(p *string) value                 { return textValue{p} }
func choice(p *string, of ...string) value { return choiceValue{p, of} }
func boolean(p *bool) value                { return booleanValue{p} }
func duration(p *time.Duration) value      { return durationValue{p, false} }

// limit is a duration of which zero means none.
func limit(p *time.Duration) value { return durationValue{p, true} }

func integer(p *int64, least int64) value { return integerValue{p, least} }
func list(p *[]string) value              { return listValue{p} }
func plugins(p *map[string]Plugin) value  { return pluginsValue{p} }

func last(given []string) string {
	if len(given) == 0 {
		return ""
	}
	return strings.TrimSpace(given[len(given)-1])
}

// scalar takes one value of the file, which is text as it is written there.
func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return "", fmt.Errorf("is a %s: want one value", yamlKind(raw))
}

func yamlKind(raw any) string {
	switch raw.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	}
	return "value"
}

func decodeScalar(v value, raw any) error {
	s, err := scalar(raw)
	if err != nil {
		return err
	}
	return v.set([]string{s})
}

func (v textValue) set(given []string) error { *v.p = last(given); return nil }
func (v textValue) decode(raw any) error     { return decodeScalar(v, raw) }
func (v textValue) show() any                { return *v.p }
func (v textValue) kind() string             { return "text" }

func (v choiceValue) set(given []string) error {
	s := last(given)
	if !slices.Contains(v.of, s) {
		return fmt.Errorf("is %q: want one of %s", s, strings.Join(v.of, ", "))
	}
	*v.p = s
	return nil
}
func (v choiceValue) decode(raw any) error { return decodeScalar(v, raw) }
func (v choiceValue) show() any            { return *v.p }
func (v choiceValue) kind() string         { return strings.Join(v.of, "|") }

func (v booleanValue) set(given []string) error {
	b, err := strconv.ParseBool(last(given))
	if err != nil {
		return fmt.Errorf("is %q: want true or false", last(given))
	}
	*v.p = b
	return nil
}
func (v booleanValue) decode(raw any) error { return decodeScalar(v, raw) }
func (v booleanValue) show() any            { return *v.p }
func (v booleanValue) kind() string         { return "" }

func (v durationValue) set(given []string) error {
	d, err := time.ParseDuration(last(given))
	if v.zero && err == nil && d == 0 {
		*v.p = 0
		return nil
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("is %q: want a duration above zero such as 30s or 15m", last(given))
	}
	*v.p = d
	return nil
}
func (v durationValue) decode(raw any) error { return decodeScalar(v, raw) }
func (v durationValue) show() any            { return v.p.String() }
func (v durationValue) kind() string         { return "duration" }

func (v integerValue) set(given []string) error {
	n, err := strconv.ParseInt(last(given), 10, 64)
	if err != nil || n < v.least {
		return fmt.Errorf("is %q: want a whole number from %d", last(given), v.least)
	}
	*v.p = n
	return nil
}
func (v integerValue) decode(raw any) error { return decodeScalar(v, raw) }
func (v integerValue) show() any            { return *v.p }
func (v integerValue) kind() string         { return "number" }

func (v listValue) set(given []string) error {
	var out []string
	for _, g := range given {
		for _, s := range strings.Split(g, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	*v.p = out
	return nil
}

func (v listValue) decode(raw any) error {
	items, isList := raw.([]any)
	if !isList {
		return decodeScalar(v, raw)
	}
	var out []string
	for i, item := range items {
		s, err := scalar(item)
		if err != nil {
			return fmt.Errorf("entry %d %w", i+1, err)
		}
		out = append(out, s)
	}
	*v.p = out
	return nil
}
func (v listValue) show() any    { return *v.p }
func (v listValue) kind() string { return "text, repeatable" }

func (v pluginsValue) set(given []string) error {
	*v.p = nil
	s := last(given)
	if s == "" {
		return nil
	}
	if err := yaml.UnmarshalStrict([]byte(s), v.p); err != nil {
		return fmt.Errorf("is no JSON object of plugins: %w", err)
	}
	return nil
}

func (v pluginsValue) decode(raw any) error {
	b, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	*v.p = nil
	if err := yaml.UnmarshalStrict(b, v.p); err != nil {
		return fmt.Errorf("is not what a list of plugins looks like: %w", err)
	}
	return nil
}

func (v pluginsValue) show() any {
	out := map[string]any{}
	for name, p := range *v.p {
		shown := map[string]any{"required": p.Required}
		if p.OnError != "" {
			shown["on_error"] = p.OnError
		}
		if p.SHA256 != "" {
			shown["sha256"] = p.SHA256
		}
		if p.Timeout != "" {
			shown["timeout"] = p.Timeout
		}
		if p.GrantBackendEnvironment != nil {
			shown["grant_backend_environment"] = *p.GrantBackendEnvironment
		}
		if len(p.Config) > 0 {
			shown["config"] = masked
		}
		out[name] = shown
	}
	return out
}
func (v pluginsValue) kind() string { return "JSON" }
