package plugin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// provideLimit is the default deadline of a provider's call.
const provideLimit = 30 * time.Second

var _ kube.Connector = (*Host)(nil)

// ValidateConfig checks a provider config: against the type's schema, whose defaults it fills in, and then by the
// provider, if that can. It returns the config to store and warnings to show once. The error is ErrInvalidConfig (with
// *InvalidConfig inside) when the config is at fault, ErrNotServed when nobody serves the type, and an *Error of the
// plugin otherwise.
func (h *Host) ValidateConfig(ctx context.Context, clusterType string, config json.RawMessage) (normalised json.RawMessage, warnings []FieldError, err error) {
	s, t, err := h.server(clusterType)
	if err != nil {
		return nil, nil, err
	}
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	filled, errs := t.schema.Check(config)
	if len(errs) > 0 {
		bad := &InvalidConfig{}
		for _, e := range errs {
			bad.Fields = append(bad.Fields, FieldError{Path: e.Path, Message: e.Message})
		}
		return nil, nil, s.errorf(false, bad, "%v", bad)
	}
	if !s.describe().able[pluginv1.Capability_CAPABILITY_VALIDATE_CONFIG] {
		return filled, nil, nil
	}
	s.redact.add(secretValues(t.schema, filled)...)
	var stored []byte
	err = s.call(ctx, "ValidateConfig", provideLimit, func(ctx context.Context, in *instance) (err error) {
		stored, warnings, err = in.validateConfig(ctx, t, filled)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range warnings {
		warnings[i].Message = s.redact.clean(warnings[i].Message)
	}
	return stored, warnings, nil
}

// Connect asks the provider of the cluster's type for a connection. It implements kube.Connector.
func (h *Host) Connect(ctx context.Context, c cluster.Cluster) (kube.Connection, error) {
	s, t, err := h.server(c.Type)
	if err != nil {
		return kube.Connection{}, err
	}
	config := c.ProviderConfig
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	s.redact.add(secretValues(t.schema, config)...)
	var connection kube.Connection
	err = s.call(ctx, "Connect", provideLimit, func(ctx context.Context, in *instance) (err error) {
		connection, err = in.connect(ctx, t, c.ID, config, s.backendGranted())
		return err
	})
	return connection, err
}

// backendGranted says whether the operator lets the plugin use the server's own environment.
func (s *slot) backendGranted() bool {
	if grant := s.cfg.GrantBackendEnvironment; grant != nil {
		return *grant
	}
	return s.name == "provider-sameasbackend"
}
