package main

import (
	"context"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

var info = sdk.Info{Name: "sameasbackend", Version: "1.0.0", Title: "Runs jobs where the server itself is at home"}

// backend answers with the host's own environment; the host honours that for plugins to which the operator grants it.
type backend struct{}

var _ provider.Provider = (*backend)(nil)

// config has no settings. It is still a struct, so that a config with some is refused.
type config struct{}

// Types returns the one type.
func (*backend) Types() []provider.Type {
	return []provider.Type{{
		Name:  "same-as-backend",
		Title: "Same as the server",
		Description: "The cluster that the server's own environment points to: its service account when it runs in a cluster, " +
			"else its default kubeconfig.",
		Schema: schema.MustOf[config](),
	}}
}

// Connect has nothing to work out.
func (*backend) Connect(context.Context, provider.Request) (provider.Connection, error) {
	return provider.Connection{BackendEnvironment: true}, nil
}
