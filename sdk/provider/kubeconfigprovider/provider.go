// Package kubeconfigprovider is a ready provider for cluster types whose config is a kubeconfig that somebody pastes. A
// plugin for one more kind of cluster that is reached in this way is a main of a few lines:
//
//	sdk.Serve(info, kubeconfigprovider.New(kubeconfigprovider.Options{
//		Type: "k3s", Title: "k3s", HelpCommand: "sudo cat /etc/rancher/k3s/k3s.yaml",
//	}))
//
// Embed the result to add a provider.Tester or a provider.Registrar. What a kubeconfig may hold is decided by the host's
// policy at Connect, for every provider alike; this package only reads, checks and trims it.
package kubeconfigprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/invopop/jsonschema"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// Config is the provider config of a cluster.
type Config struct {
	Kubeconfig Text   `json:"kubeconfig"`
	Context    string `json:"context,omitempty" jsonschema:"title=Context,maxLength=1024" jsonschema_description:"The context to use. Empty: the kubeconfig's current one."`
}

// Text is a kubeconfig as text, YAML or JSON. In JSON it may also be given as a mapping, which becomes JSON text.
type Text string

// JSONSchema describes the two forms. Forms show the first one, a text area.
func (Text) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Title:       "Kubeconfig",
		Description: "YAML or JSON text, or a mapping. Only the context in use is stored.",
		Extras: map[string]any{
			"type":                 []string{"string", "object"},
			schema.SecretKeyword:   true,
			schema.TextareaKeyword: true,
		},
	}
}

// UnmarshalJSON takes a string or an object.
func (t *Text) UnmarshalJSON(raw []byte) error {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '{' {
		*t = Text(raw)
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// Options name the cluster type.
type Options struct {
	// Type is the cluster type's name and Title its line in lists. Both required.
	Type, Title string
	// Description is a few sentences of plain text; may be empty.
	Description string
	// HelpCommand prints a kubeconfig that needs nothing beside it; it is shown with a copy button. May be empty.
	HelpCommand string
}

// Provider serves one cluster type whose config is a [Config]. It is safe for concurrent use.
type Provider struct {
	types []provider.Type
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Validator = (*Provider)(nil)
)

// New returns a provider. It panics when the schema cannot be made, which no options can cause.
func New(o Options) *Provider {
	return &Provider{types: []provider.Type{{
		Name: o.Type, Title: o.Title, Description: o.Description, Schema: schemaWith(o.HelpCommand),
	}}}
}

// schemaWith returns the schema of Config with the help command of a type.
func schemaWith(command string) []byte {
	reflector := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	described := reflector.Reflect(Config{})
	if kubeconfig, ok := described.Properties.Get("kubeconfig"); ok && command != "" {
		kubeconfig.Extras[schema.HelpCommandKeyword] = command
	}
	raw, err := json.Marshal(described)
	if err != nil {
		panic(fmt.Sprintf("the schema of a kubeconfig: %v", err))
	}
	return raw
}

// Types returns the one type.
func (p *Provider) Types() []provider.Type { return p.types }

// ValidateConfig returns the config to store: the kubeconfig as JSON text with only the context in use, so that no
// credential is stored that is not needed.
func (p *Provider) ValidateConfig(_ context.Context, r provider.Request) (provider.Valid, error) {
	config, trimmed, err := read(r.Config)
	if err != nil {
		return provider.Valid{}, err
	}
	config.Kubeconfig = Text(trimmed)
	return provider.Valid{Config: config}, nil
}

// Connect returns the kubeconfig with only the context in use.
func (p *Provider) Connect(_ context.Context, r provider.Request) (provider.Connection, error) {
	_, trimmed, err := read(r.Config)
	if err != nil {
		return provider.Connection{}, err
	}
	return provider.Connection{Kubeconfig: trimmed}, nil
}

// read decodes a config and trims its kubeconfig.
func read(raw []byte) (Config, []byte, error) {
	var config Config
	if err := json.Unmarshal(raw, &config); err != nil {
		// The SDK has held the config against the schema; the decoder's text could quote a value.
		return config, nil, field.Errorf("", "The config does not fit its schema.")
	}
	trimmed, errs := Trim([]byte(config.Kubeconfig), config.Context)
	return config, trimmed, errs.Err()
}
