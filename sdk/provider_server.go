package sdk

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

var typeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// providerServer serves provider.v1 for an implementation.
type providerServer struct {
	providerv1.UnimplementedProviderServiceServer
	impl    provider.Provider
	types   []*providerv1.ClusterType
	schemas map[string]*schema.Schema
}

// newProviderServer reads the types once: they are the same for the life of the process.
func newProviderServer(impl provider.Provider) (*providerServer, error) {
	s := &providerServer{impl: impl, schemas: map[string]*schema.Schema{}}
	var errs []error
	_, registers := impl.(provider.Registrar)
	for _, t := range impl.Types() {
		compiled, err := schema.Compile(t.Schema)
		if err != nil {
			errs = append(errs, fmt.Errorf("type %q: %w", t.Name, err))
		}
		if !typeName.MatchString(t.Name) {
			errs = append(errs, fmt.Errorf("type %q: the name needs lower-case letters, digits and dashes, at most 63, starting with a letter", t.Name))
		}
		if t.Title == "" {
			errs = append(errs, fmt.Errorf("type %q has no title", t.Name))
		}
		if _, twice := s.schemas[t.Name]; twice {
			errs = append(errs, fmt.Errorf("type %q is offered twice", t.Name))
		}
		style := providerv1.RegistrationStyle_REGISTRATION_STYLE_FORM
		if t.Style == provider.SelfService {
			style = providerv1.RegistrationStyle_REGISTRATION_STYLE_SELF_SERVICE
			if !registers {
				errs = append(errs, fmt.Errorf("type %q is self-service, so the plugin must implement provider.Registrar", t.Name))
			}
		}
		s.schemas[t.Name] = compiled
		s.types = append(s.types, &providerv1.ClusterType{
			Name: t.Name, Title: t.Title, Description: t.Description, ConfigSchema: t.Schema, RegistrationStyle: style,
		})
	}
	if len(s.types) == 0 {
		errs = append(errs, errors.New("Types returned no type"))
	}
	return s, errors.Join(errs...)
}

func (s *providerServer) register(r grpc.ServiceRegistrar) {
	providerv1.RegisterProviderServiceServer(r, s)
}

// ListClusterTypes implements provider.v1.
func (s *providerServer) ListClusterTypes(context.Context, *providerv1.ListClusterTypesRequest) (*providerv1.ListClusterTypesResponse, error) {
	return &providerv1.ListClusterTypesResponse{Types: s.types}, nil
}

// request checks type and config of any call, so that an author sees only what passes the schema. The stored config
// goes to the author with defaults filled in.
func (s *providerServer) request(clusterID, name string, config []byte) (provider.Request, field.Errors, error) {
	compiled, ok := s.schemas[name]
	if !ok {
		return provider.Request{}, nil, status.Errorf(codes.InvalidArgument, "the plugin does not serve the cluster type %q", name)
	}
	filled, errs := compiled.Check(config)
	return provider.Request{ClusterID: clusterID, Type: name, Config: filled}, errs, nil
}

// checked is request for the calls whose answer has no place for field errors.
func (s *providerServer) checked(clusterID, name string, config []byte) (provider.Request, error) {
	request, errs, err := s.request(clusterID, name, config)
	if err == nil && len(errs) > 0 {
		err = toStatus(errs)
	}
	return request, err
}

// partial checks a config that may still be incomplete, as registrations have it: it need not pass the schema.
func (s *providerServer) partial(name string, config []byte) (provider.Request, error) {
	if _, ok := s.schemas[name]; !ok {
		return provider.Request{}, status.Errorf(codes.InvalidArgument, "the plugin does not serve the cluster type %q", name)
	}
	if len(config) == 0 {
		config = []byte("{}")
	}
	return provider.Request{Type: name, Config: config}, nil
}

// toStore turns an author's config into what the host stores: it must pass the type's schema.
func (s *providerServer) toStore(method, name string, config any) ([]byte, error) {
	raw, ok := marshalObject(config)
	if !ok {
		return nil, badAnswer(method, "the config to store is not a JSON object")
	}
	if _, errs := s.schemas[name].Check(raw); len(errs) > 0 {
		return nil, badAnswer(method, "the config to store does not pass the type's schema: %v", errs)
	}
	return raw, nil
}

// ValidateConfig implements provider.v1.
func (s *providerServer) ValidateConfig(ctx context.Context, r *providerv1.ValidateConfigRequest) (*providerv1.ValidateConfigResponse, error) {
	validator, ok := s.impl.(provider.Validator)
	if !ok {
		return s.UnimplementedProviderServiceServer.ValidateConfig(ctx, r)
	}
	request, errs, err := s.request("", r.GetClusterType(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return &providerv1.ValidateConfigResponse{FieldErrors: fieldErrors(errs)}, nil
	}
	valid, err := validator.ValidateConfig(ctx, request)
	if errs, ok := asFieldErrors(err); ok {
		return &providerv1.ValidateConfigResponse{FieldErrors: fieldErrors(errs)}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	raw, err := s.toStore("ValidateConfig", request.Type, valid.Config)
	if err != nil {
		return nil, err
	}
	return &providerv1.ValidateConfigResponse{NormalizedConfig: raw, Warnings: fieldErrors(valid.Warnings)}, nil
}

// Connect implements provider.v1.
func (s *providerServer) Connect(ctx context.Context, r *providerv1.ConnectRequest) (*providerv1.ConnectResponse, error) {
	request, err := s.checked(r.GetClusterId(), r.GetClusterType(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	connection, err := s.impl.Connect(ctx, request)
	if err != nil {
		return nil, toStatus(err)
	}
	out := &providerv1.ConnectResponse{}
	switch hasKubeconfig := len(connection.Kubeconfig) > 0; {
	case hasKubeconfig == connection.BackendEnvironment:
		return nil, badAnswer("Connect", "exactly one of Kubeconfig and BackendEnvironment must be set")
	case len(connection.Kubeconfig) > 1<<20:
		return nil, badAnswer("Connect", "the kubeconfig has more than 1 MiB")
	case hasKubeconfig:
		out.Connection = &providerv1.ConnectResponse_Kubeconfig{Kubeconfig: connection.Kubeconfig}
	default:
		out.Connection = &providerv1.ConnectResponse_BackendEnvironment{BackendEnvironment: &providerv1.BackendEnvironment{}}
	}
	if !connection.ExpiresAt.IsZero() {
		out.ExpiresAt = timestamppb.New(connection.ExpiresAt)
	}
	if connection.ReplacementConfig != nil {
		if out.ReplacementConfig, err = s.toStore("Connect", request.Type, connection.ReplacementConfig); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TestConnection implements provider.v1.
func (s *providerServer) TestConnection(ctx context.Context, r *providerv1.TestConnectionRequest) (*providerv1.TestConnectionResponse, error) {
	tester, ok := s.impl.(provider.Tester)
	if !ok {
		return s.UnimplementedProviderServiceServer.TestConnection(ctx, r)
	}
	request, err := s.checked(r.GetClusterId(), r.GetClusterType(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	verdict, err := tester.TestConnection(ctx, request)
	if err != nil {
		return nil, toStatus(err)
	}
	switch verdict.Class {
	case provider.OK, provider.DNS, provider.Refused, provider.Timeout, provider.TLS, provider.NotKubernetes,
		provider.Credentials, provider.Permissions:
	default:
		return nil, badAnswer("TestConnection", "the class %q is not one of the contract's", verdict.Class)
	}
	if verdict.Message == "" {
		return nil, badAnswer("TestConnection", "the message is empty")
	}
	return &providerv1.TestConnectionResponse{
		Ok: verdict.Class == provider.OK, Class: string(verdict.Class), Message: verdict.Message,
	}, nil
}

// DescribeRegistration implements provider.v1.
func (s *providerServer) DescribeRegistration(ctx context.Context, r *providerv1.DescribeRegistrationRequest) (*providerv1.DescribeRegistrationResponse, error) {
	registrar, ok := s.impl.(provider.Registrar)
	if !ok {
		return s.UnimplementedProviderServiceServer.DescribeRegistration(ctx, r)
	}
	request, err := s.partial(r.GetClusterType(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	registration, err := registrar.DescribeRegistration(ctx, request)
	if err != nil {
		return nil, toStatus(err)
	}
	if len(registration.Commands) == 0 || len(registration.Script) == 0 {
		return nil, badAnswer("DescribeRegistration", "commands and script are both required")
	}
	out := &providerv1.DescribeRegistrationResponse{Script: registration.Script}
	for _, c := range registration.Commands {
		if c.Title == "" || c.Command == "" {
			return nil, badAnswer("DescribeRegistration", "a command needs a title and a command")
		}
		out.Commands = append(out.Commands, &providerv1.RegistrationCommand{Title: c.Title, Command: c.Command})
	}
	return out, nil
}

// CompleteRegistration implements provider.v1.
func (s *providerServer) CompleteRegistration(ctx context.Context, r *providerv1.CompleteRegistrationRequest) (*providerv1.CompleteRegistrationResponse, error) {
	registrar, ok := s.impl.(provider.Registrar)
	if !ok {
		return s.UnimplementedProviderServiceServer.CompleteRegistration(ctx, r)
	}
	request, err := s.partial(r.GetClusterType(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	config, err := registrar.CompleteRegistration(ctx, request, r.GetPayload())
	if errs, ok := asFieldErrors(err); ok {
		return &providerv1.CompleteRegistrationResponse{FieldErrors: fieldErrors(errs)}, nil
	}
	if err != nil {
		return nil, toStatus(err)
	}
	raw, err := s.toStore("CompleteRegistration", request.Type, config)
	if err != nil {
		return nil, err
	}
	return &providerv1.CompleteRegistrationResponse{Config: raw}, nil
}
