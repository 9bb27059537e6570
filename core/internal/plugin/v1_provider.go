package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// clusterType is a type that a provider offers.
type clusterType struct {
	TypeInfo
	schema *schema.Schema
}

var typeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// types asks which cluster types the provider serves.
func (in *instance) types(ctx context.Context, plugin string) ([]clusterType, error) {
	r, err := in.provider.ListClusterTypes(ctx, &providerv1.ListClusterTypesRequest{})
	if err != nil {
		return nil, err
	}
	if len(r.GetTypes()) == 0 {
		return nil, breach("it offers no cluster type")
	}
	var types []clusterType
	for _, t := range r.GetTypes() {
		name := t.GetName()
		if !typeName.MatchString(name) {
			return nil, breach("it offers the cluster type %q; names have at most 63 lower-case letters, digits and dashes and begin with a letter", cut(name, 80))
		}
		if slices.ContainsFunc(types, func(o clusterType) bool { return o.Name == name }) {
			return nil, breach("it offers the cluster type %s twice", name)
		}
		if t.GetTitle() == "" {
			return nil, breach("its cluster type %s has no title", name)
		}
		style := t.GetRegistrationStyle()
		if style != providerv1.RegistrationStyle_REGISTRATION_STYLE_FORM && style != providerv1.RegistrationStyle_REGISTRATION_STYLE_SELF_SERVICE {
			return nil, breach("its cluster type %s has no known registration style (%d)", name, style)
		}
		compiled, err := schema.Compile(t.GetConfigSchema())
		if err != nil {
			return nil, breach("the schema of its cluster type %s: %v", name, err)
		}
		types = append(types, clusterType{schema: compiled, TypeInfo: TypeInfo{
			Name: name, Title: cut(t.GetTitle(), 200), Description: cut(t.GetDescription(), maxReason),
			Schema: json.RawMessage(t.GetConfigSchema()), Plugin: plugin,
			SelfService: style == providerv1.RegistrationStyle_REGISTRATION_STYLE_SELF_SERVICE,
		}})
	}
	return types, nil
}

// validateConfig has the provider check and normalise a config that passed the type's schema.
func (in *instance) validateConfig(ctx context.Context, t clusterType, config []byte) ([]byte, []FieldError, error) {
	r, err := in.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: t.Name, Config: config})
	if err != nil {
		return nil, nil, err
	}
	if err := invalid(r.GetFieldErrors()); err != nil {
		return nil, nil, err
	}
	if err := t.storable(r.GetNormalizedConfig()); err != nil {
		return nil, nil, fmt.Errorf("the normalised config %w", err)
	}
	return r.GetNormalizedConfig(), fieldErrors(r.GetWarnings()), nil
}

// storable says what is wrong with a config that a provider wants to have stored.
func (t clusterType) storable(config []byte) error {
	if _, errs := t.schema.Check(config); len(errs) > 0 {
		return fmt.Errorf("does not pass the schema of cluster type %s: %w", t.Name, errs)
	}
	return nil
}

// maxKubeconfig bounds a kubeconfig, in bytes.
const maxKubeconfig = 1 << 20

// connect asks how to reach a cluster.
func (in *instance) connect(ctx context.Context, t clusterType, clusterID string, config []byte, backendGranted bool) (kube.Connection, error) {
	r, err := in.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterId: clusterID, ClusterType: t.Name, Config: config})
	if err != nil {
		return kube.Connection{}, err
	}
	var c kube.Connection
	switch way := r.GetConnection().(type) {
	case *providerv1.ConnectResponse_Kubeconfig:
		if n := len(way.Kubeconfig); n == 0 || n > maxKubeconfig {
			return kube.Connection{}, fmt.Errorf("its kubeconfig has %d bytes; 1 to %d are allowed", n, maxKubeconfig)
		}
		c.Kubeconfig = way.Kubeconfig
	case *providerv1.ConnectResponse_BackendEnvironment:
		if !backendGranted {
			return kube.Connection{}, errors.New("it asks to use the server's own environment, which the configuration does not grant it; " +
				"set grant_backend_environment for it if you trust it with that")
		}
		c.Backend = true
	default:
		return kube.Connection{}, errors.New("its answer holds no connection")
	}
	if at := r.GetExpiresAt(); at != nil {
		if err := at.CheckValid(); err != nil {
			return kube.Connection{}, fmt.Errorf("its expiry is no valid time: %w", err)
		}
		c.ExpiresAt = at.AsTime()
	}
	if config := r.GetReplacementConfig(); len(config) > 0 {
		if err := t.storable(config); err != nil {
			return kube.Connection{}, fmt.Errorf("its replacement config %w", err)
		}
		c.ReplacementConfig = config
	}
	return c, nil
}
