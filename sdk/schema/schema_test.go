package schema_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

type inner struct {
	Port int `json:"port" jsonschema:"minimum=1,maximum=65535,default=6443"`
}

type config struct {
	Server string            `json:"server" jsonschema:"title=Server,format=uri"`
	Token  string            `json:"token,omitempty" jsonschema_extras:"x-nagelfluh-secret=true,x-nagelfluh-help-command=create token"`
	Notes  string            `json:"notes,omitempty" jsonschema_extras:"x-nagelfluh-textarea=true"`
	Zone   string            `json:"zone,omitempty" jsonschema:"enum=eu,enum=us,default=eu"`
	Hosts  []string          `json:"hosts,omitempty" jsonschema:"uniqueItems=true,maxItems=2,pattern=^[a-z]+$"`
	Inner  inner             `json:"inner,omitzero"`
	Labels map[string]string `json:"labels,omitempty"`
}

func TestDecode(t *testing.T) {
	got, err := schema.Decode[config]([]byte(`{"server": "https://example.org", "inner": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Zone != "eu" || got.Inner.Port != 6443 || got.Server != "https://example.org" {
		t.Errorf("got %+v", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const secret = "hunter2-hunter2"
	tests := map[string]struct{ config, path, message string }{
		"no JSON":       {`{"server`, "", "not a JSON object"},
		"no object":     {`[]`, "", "not a JSON object"},
		"two documents": {`{"server": "https://a.example"} {}`, "", "not a JSON object"},
		"missing":       {`{}`, "/server", "Required"},
		"unknown":       {`{"server": "https://a.example", "sever": 1}`, "/sever", "no such field"},
		"type":          {`{"server": "https://a.example", "token": ["` + secret + `"]}`, "/token", "of type string"},
		"format":        {`{"server": "` + secret + `"}`, "/server", "valid uri"},
		"enum":          {`{"server": "https://a.example", "zone": "` + secret + `"}`, "/zone", `"eu", "us"`},
		"pattern":       {`{"server": "https://a.example", "hosts": ["` + secret + `"]}`, "/hosts/0", "^[a-z]+$"},
		"too many":      {`{"server": "https://a.example", "hosts": ["a", "b", "c"]}`, "/hosts", "at most 2"},
		"twice":         {`{"server": "https://a.example", "hosts": ["a", "a"]}`, "/hosts", "are the same"},
		"bound":         {`{"server": "https://a.example", "inner": {"port": 0}}`, "/inner/port", "at least 1"},
		"mapping":       {`{"server": "https://a.example", "labels": {"a/b": 1}}`, "/labels/a~1b", "of type string"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := schema.Decode[config]([]byte(test.config))
			var errs field.Errors
			if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Path != test.path || !strings.Contains(errs[0].Message, test.message) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the value is shown: %v", err)
			}
		})
	}
}

func TestOf(t *testing.T) {
	raw, err := schema.Of[config]()
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := compiled.Secrets(); !slices.Equal(got, []string{"/token"}) {
		t.Errorf("secrets: %v", got)
	}
	var node struct {
		Properties map[string]map[string]any `json:"properties"`
		Required   []string                  `json:"required"`
	}
	if err := json.Unmarshal(raw, &node); err != nil {
		t.Fatal(err)
	}
	if node.Properties["token"]["x-nagelfluh-help-command"] != "create token" || node.Properties["notes"]["x-nagelfluh-textarea"] != true {
		t.Errorf("got %s", raw)
	}
	if !slices.Equal(node.Required, []string{"server"}) {
		t.Errorf("required: %v", node.Required)
	}
}

type recursive struct {
	Next *recursive `json:"next,omitempty"`
}

type loose struct {
	Any any `json:"any"`
}

func TestOfRefuses(t *testing.T) {
	if _, err := schema.Of[recursive](); err == nil || !strings.Contains(err.Error(), "contains itself") {
		t.Errorf("got %v", err)
	}
	if _, err := schema.Of[loose](); err == nil || !strings.Contains(err.Error(), "must be a schema object") {
		t.Errorf("got %v", err)
	}
	if _, err := schema.Of[string](); err == nil {
		t.Error("a string has become a config")
	}
}

func TestProfile(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 9) + `{"type":"string"}` + strings.Repeat(`}}`, 9)
	refused := map[string]struct{ schema, says string }{
		"no JSON":            {`{`, "not a JSON object"},
		"root":               {`{"type": "string"}`, `must have "type": "object"`},
		"no type":            {`{"type": "object", "properties": {"a": {}}}`, "/properties/a: needs a"},
		"null":               {`{"type": "object", "properties": {"a": {"type": ["string", "null"]}}}`, "needs a"},
		"reference":          {`{"type": "object", "properties": {"a": {"type": "string", "$ref": "#"}}}`, "/properties/a/$ref"},
		"remote":             {`{"type": "object", "$dynamicRef": "https://example.org"}`, "/$dynamicRef"},
		"combination":        {`{"type": "object", "anyOf": [{"type": "object"}]}`, "/anyOf"},
		"dialect":            {`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}`, "$schema"},
		"look-ahead":         {`{"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}}`, "RE2"},
		"format":             {`{"type": "object", "properties": {"a": {"type": "string", "format": "iri"}}}`, `"iri"`},
		"keyword of another": {`{"type": "object", "properties": {"a": {"type": "integer", "minLength": 1}}}`, "/properties/a/minLength"},
		"secret number":      {`{"type": "object", "properties": {"a": {"type": "integer", "x-nagelfluh-secret": true}}}`, "x-nagelfluh-secret"},
		"secret default":     {`{"type": "object", "properties": {"a": {"type": "string", "default": "x", "x-nagelfluh-secret": true}}}`, "is a secret"},
		"secret as text":     {`{"type": "object", "properties": {"a": {"type": "string", "x-nagelfluh-secret": "true"}}}`, "true or false"},
		"default":            {`{"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}`, "default"},
		"bad bound":          {`{"type": "object", "properties": {"a": {"type": "integer", "minimum": "x"}}}`, "not valid"},
		"too deep":           {deep, "deeper than 8"},
		"too big":            {`{"type": "object", "title": "` + strings.Repeat("x", schema.MaxBytes) + `"}`, "at most 65536"},
	}
	for name, test := range refused {
		t.Run(name, func(t *testing.T) {
			if _, err := schema.Compile([]byte(test.schema)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, accepted := range []string{
		`{"type": "object"}`,
		`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/x", "type": "object", "additionalProperties": false}`,
		`{"type": "object", "properties": {"a": {"type": ["string", "object"], "x-nagelfluh-secret": true, "x-nagelfluh-textarea": true}}}`,
		`{"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number", "multipleOf": 0.5}}}`,
	} {
		if _, err := schema.Compile([]byte(accepted)); err != nil {
			t.Errorf("%s: %v", accepted, err)
		}
	}
}
