package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

var info = sdk.Info{Name: "gpu", Version: "1.0.0", Title: "Sends jobs that ask for GPUs to clusters that have them"}

// config is the operator's configuration of the plugin.
type config struct {
	ResourcePattern string `json:"resource_pattern" jsonschema:"title=Resource pattern,minLength=1,maxLength=1000,default=^([^/]+/gpu([.-].+)?|nvidia\\.com/mig-.+|gpu\\.intel\\.com/.+)$" jsonschema_description:"RE2 pattern of the resource names that are GPUs."`
	OptInLabel      string `json:"opt_in_label" jsonschema:"title=Opt-in label,pattern=^[^=]+=[^=]*$,maxLength=400,default=nagelfluh.io/gpu=true" jsonschema_description:"Label, as key=value, of clusters that take GPU jobs although their nodes cannot be read."`
}

// rules is the configuration in the form that is used.
type rules struct {
	pattern    *regexp.Regexp
	label      string // key=value
	key, value string
}

// ConfigSchema describes the configuration.
func (*gpuSelector) ConfigSchema() []byte { return schema.MustOf[config]() }

// Configure puts the configuration into force. It is called once, before any placement.
func (g *gpuSelector) Configure(_ context.Context, raw json.RawMessage) error {
	c, err := schema.Decode[config](raw)
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile(c.ResourcePattern)
	if err != nil {
		return field.Errorf("/resource_pattern", "Is not an RE2 pattern; try it at the Go playground.")
	}
	key, value, _ := strings.Cut(c.OptInLabel, "=")
	g.rules = rules{pattern: pattern, label: c.OptInLabel, key: key, value: value}
	return nil
}

// optedIn says whether an admin vouches for a cluster's GPUs.
func (r rules) optedIn(labels map[string]string) bool {
	value, ok := labels[r.key]
	return ok && value == r.value
}
