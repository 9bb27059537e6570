package plugintest

import (
	"context"
	"encoding/json"
	"testing"

	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
)

// ProviderPlugin calls a provider in memory, as a host does. It is safe for concurrent use.
type ProviderPlugin struct {
	client providerv1.ProviderServiceClient
}

// Provider starts a provider for the test's time. The config is the operator's JSON; empty: none.
func Provider(t testing.TB, impl provider.Provider, config string) *ProviderPlugin {
	t.Helper()
	return &ProviderPlugin{client: providerv1.NewProviderServiceClient(start(t, impl, config))}
}

// ValidateConfig returns the config to store and the warnings; its error is field.Errors when the config is at fault.
func (p *ProviderPlugin) ValidateConfig(ctx context.Context, clusterType, config string) (provider.Valid, error) {
	r, err := p.client.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: clusterType, Config: []byte(config)})
	if err != nil {
		return provider.Valid{}, plain(err)
	}
	if errs := fieldErrors(r.GetFieldErrors()); len(errs) > 0 {
		return provider.Valid{}, errs
	}
	return provider.Valid{Config: json.RawMessage(r.GetNormalizedConfig()), Warnings: fieldErrors(r.GetWarnings())}, nil
}

// Connect returns the connection of one cluster.
func (p *ProviderPlugin) Connect(ctx context.Context, clusterID, clusterType, config string) (provider.Connection, error) {
	r, err := p.client.Connect(ctx, &providerv1.ConnectRequest{ClusterId: clusterID, ClusterType: clusterType, Config: []byte(config)})
	if err != nil {
		return provider.Connection{}, plain(err)
	}
	out := provider.Connection{Kubeconfig: r.GetKubeconfig(), BackendEnvironment: r.GetBackendEnvironment() != nil}
	if r.GetExpiresAt() != nil {
		out.ExpiresAt = r.GetExpiresAt().AsTime()
	}
	if len(r.GetReplacementConfig()) > 0 {
		out.ReplacementConfig = json.RawMessage(r.GetReplacementConfig())
	}
	return out, nil
}

// TestConnection returns the provider's own verdict.
func (p *ProviderPlugin) TestConnection(ctx context.Context, clusterType, config string) (provider.Verdict, error) {
	r, err := p.client.TestConnection(ctx, &providerv1.TestConnectionRequest{ClusterType: clusterType, Config: []byte(config)})
	if err != nil {
		return provider.Verdict{}, plain(err)
	}
	return provider.Verdict{Class: provider.Class(r.GetClass()), Message: r.GetMessage()}, nil
}

// DescribeRegistration returns what an admin is to run.
func (p *ProviderPlugin) DescribeRegistration(ctx context.Context, clusterType, config string) (provider.Registration, error) {
	r, err := p.client.DescribeRegistration(ctx, &providerv1.DescribeRegistrationRequest{ClusterType: clusterType, Config: []byte(config)})
	if err != nil {
		return provider.Registration{}, plain(err)
	}
	out := provider.Registration{Script: r.GetScript()}
	for _, c := range r.GetCommands() {
		out.Commands = append(out.Commands, provider.Command{Title: c.GetTitle(), Command: c.GetCommand()})
	}
	return out, nil
}

// CompleteRegistration returns the config to store; its error is field.Errors when the payload is at fault.
func (p *ProviderPlugin) CompleteRegistration(ctx context.Context, clusterType, config, payload string) (json.RawMessage, error) {
	r, err := p.client.CompleteRegistration(ctx, &providerv1.CompleteRegistrationRequest{
		ClusterType: clusterType, Config: []byte(config), Payload: []byte(payload),
	})
	if err != nil {
		return nil, plain(err)
	}
	if errs := fieldErrors(r.GetFieldErrors()); len(errs) > 0 {
		return nil, errs
	}
	return r.GetConfig(), nil
}
