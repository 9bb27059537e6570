package sdk

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// pluginServer serves plugin.v1.
type pluginServer struct {
	pluginv1.UnimplementedPluginServiceServer
	plugin *Plugin
}

// Describe implements plugin.v1.
func (s *pluginServer) Describe(_ context.Context, r *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	p := s.plugin
	hclog.Default().Debug("described", "host_version", r.GetHostVersion())
	return &pluginv1.DescribeResponse{
		Name:         p.info.Name,
		Version:      p.info.Version,
		Title:        p.info.Title,
		DocsUrl:      p.info.DocsURL,
		Kind:         p.kind,
		Capabilities: p.abled,
		ConfigSchema: p.config,
	}, nil
}

// Configure implements plugin.v1. The schema is held against the configuration here too, so that an author may rely on it
// whatever the host.
func (s *pluginServer) Configure(ctx context.Context, r *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	p := s.plugin
	config := r.GetConfig()
	if len(config) == 0 {
		config = []byte("{}")
	}
	if p.schema == nil {
		if !isEmptyObject(config) {
			return &pluginv1.ConfigureResponse{FieldErrors: fieldErrors(field.Errorf("", "The plugin takes no configuration; remove it."))}, nil
		}
		return &pluginv1.ConfigureResponse{}, nil
	}
	filled, errs := p.schema.Check(config)
	if len(errs) > 0 {
		return &pluginv1.ConfigureResponse{FieldErrors: fieldErrors(errs)}, nil
	}
	err := p.impl.(Configurable).Configure(ctx, filled)
	if errs, ok := asFieldErrors(err); ok {
		return &pluginv1.ConfigureResponse{FieldErrors: fieldErrors(errs)}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &pluginv1.ConfigureResponse{}, nil
}

// badAnswer is the error for an answer that breaks the contract: a fault of the plugin's author.
func badAnswer(method, format string, args ...any) error {
	return status.Errorf(codes.Internal, "the plugin's "+method+" answered wrongly: "+format, args...)
}
