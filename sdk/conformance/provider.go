package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

func providerChecks() []check {
	return []check{
		{"lists its cluster types completely and always the same", listsTypes},
		{"implements exactly the capabilities that it names", providerCapabilities},
		{"validates a config into one that validates into itself", validatesIdempotently},
		{"refuses a provider config that does not fit, without showing secrets", refusesConfig},
		{"connects with a kubeconfig or the backend's environment", connects},
		{"gives a verdict of a connection test", tests},
		{"describes the registration of self-service types", describesRegistration},
		{"refuses a cluster type that it does not serve", refusesType},
		{"survives requests without sense", providerSurvives},
		{"takes large messages", providerTakesLarge},
		{"answers concurrent calls", providerConcurrent},
		{"ends a call with its deadline", providerDeadline},
	}
}

var typeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// types asks for the cluster types.
func (s *suite) types(ctx context.Context) ([]*providerv1.ClusterType, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := s.provider.ListClusterTypes(ctx, &providerv1.ListClusterTypesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ListClusterTypes: %w", err)
	}
	return answer.GetTypes(), nil
}

// each runs a function for each cluster type and names the type in its error.
func (s *suite) each(ctx context.Context, f func(t *providerv1.ClusterType, config []byte) error) error {
	types, err := s.types(ctx)
	if err != nil {
		return err
	}
	for _, t := range types {
		config, ok := s.opts.clusters[t.GetName()]
		if !ok {
			config = "{}"
		}
		if err := f(t, []byte(config)); err != nil {
			return fmt.Errorf("type %q: %w", t.GetName(), err)
		}
	}
	return nil
}

func listsTypes(ctx context.Context, s *suite) error {
	types, err := s.types(ctx)
	if err != nil {
		return err
	}
	again, err := s.types(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if len(types) == 0 {
		errs = append(errs, errors.New("there is no type"))
	}
	if !proto.Equal(&providerv1.ListClusterTypesResponse{Types: types}, &providerv1.ListClusterTypesResponse{Types: again}) {
		errs = append(errs, errors.New("the second answer differs from the first"))
	}
	seen := map[string]bool{}
	for _, t := range types {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("type %q: "+format, append([]any{t.GetName()}, args...)...))
		}
		if !typeName.MatchString(t.GetName()) {
			fail("the name needs lower-case letters, digits and dashes, at most 63, starting with a letter")
		}
		if seen[t.GetName()] {
			fail("it is listed twice")
		}
		seen[t.GetName()] = true
		if t.GetTitle() == "" {
			fail("the title is empty")
		}
		if _, err := schema.Compile(t.GetConfigSchema()); err != nil {
			fail("%w", err)
		}
		switch t.GetRegistrationStyle() {
		case providerv1.RegistrationStyle_REGISTRATION_STYLE_FORM:
		case providerv1.RegistrationStyle_REGISTRATION_STYLE_SELF_SERVICE:
			if !s.can(pluginv1.Capability_CAPABILITY_REGISTRATION) {
				fail("it is self-service, but the plugin does not name CAPABILITY_REGISTRATION")
			}
		default:
			fail("the registration style is %s", t.GetRegistrationStyle())
		}
	}
	return errors.Join(errs...)
}

func providerCapabilities(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, validate := s.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{})
	_, test := s.provider.TestConnection(ctx, &providerv1.TestConnectionRequest{})
	_, describe := s.provider.DescribeRegistration(ctx, &providerv1.DescribeRegistrationRequest{})
	_, complete := s.provider.CompleteRegistration(ctx, &providerv1.CompleteRegistrationRequest{})
	return errors.Join(
		s.honest(pluginv1.Capability_CAPABILITY_VALIDATE_CONFIG, validate),
		s.honest(pluginv1.Capability_CAPABILITY_TEST_CONNECTION, test),
		s.honest(pluginv1.Capability_CAPABILITY_REGISTRATION, describe),
		s.honest(pluginv1.Capability_CAPABILITY_REGISTRATION, complete),
	)
}

// honest holds a capability against the answer of its method.
func (s *suite) honest(c pluginv1.Capability, err error) error {
	switch implemented := status.Code(err) != codes.Unimplemented; {
	case s.can(c) && !implemented:
		return fmt.Errorf("%s is named but not implemented", c)
	case !s.can(c) && implemented:
		return fmt.Errorf("%s is implemented but not named, so the host never uses it", c)
	}
	return nil
}

func validatesIdempotently(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_VALIDATE_CONFIG) {
		return skip("does not validate")
	}
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		first, err := s.validate(ctx, t, config)
		if err != nil {
			return fmt.Errorf("%w; give a working config with WithCluster", err)
		}
		second, err := s.validate(ctx, t, first)
		if err != nil {
			return fmt.Errorf("the normalised config is refused: %w", err)
		}
		if !sameJSON(first, second) {
			return errors.New("validating the normalised config gives another one")
		}
		return nil
	})
}

// validate returns the normalised config.
func (s *suite) validate(ctx context.Context, t *providerv1.ClusterType, config []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := s.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: t.GetName(), Config: config})
	if err != nil {
		return nil, fmt.Errorf("ValidateConfig: %w", err)
	}
	if errs := answer.GetFieldErrors(); len(errs) > 0 {
		return nil, fmt.Errorf("ValidateConfig: %s %s", errs[0].GetPath(), errs[0].GetMessage())
	}
	if err := wellFormed(answer.GetWarnings()); err != nil {
		return nil, fmt.Errorf("warnings: %w", err)
	}
	compiled, err := schema.Compile(t.GetConfigSchema())
	if err != nil {
		return nil, err
	}
	if _, errs := compiled.Check(answer.GetNormalizedConfig()); len(errs) > 0 {
		return nil, fmt.Errorf("the normalised config does not pass the type's schema: %w", errs)
	}
	return answer.GetNormalizedConfig(), nil
}

// refusesConfig sends what does not fit the schema, and what fits it with nonsense in the secret fields.
func refusesConfig(ctx context.Context, s *suite) error {
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		compiled, err := schema.Compile(t.GetConfigSchema())
		if err != nil {
			return err
		}
		for _, bad := range garbage(compiled, t.GetConfigSchema(), string(config)) {
			errs, err := s.tryConfig(ctx, t, bad.json)
			if err := wellRefused(err, errs); err != nil {
				return fmt.Errorf("a config that %s: %w", bad.what, err)
			}
			if err := leaks(err, errs); err != nil {
				return fmt.Errorf("a config that %s: %w", bad.what, err)
			}
		}
		if len(compiled.Secrets()) == 0 {
			return nil
		}
		if err := s.keepsNonsense(ctx, t, encode(planted(t.GetConfigSchema(), string(config)))); err != nil {
			return fmt.Errorf("a config with nonsense in its secret fields: %w", err)
		}
		return nil
	})
}

// keepsNonsense sends a config that passes the schema but makes no sense to every method. Each may accept it; none may
// show it.
func (s *suite) keepsNonsense(ctx context.Context, t *providerv1.ClusterType, config []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, connect := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: t.GetName(), Config: config})
	verdict, test := s.provider.TestConnection(ctx, &providerv1.TestConnectionRequest{ClusterType: t.GetName(), Config: config})
	valid, validate := s.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: t.GetName(), Config: config})
	shown := append(valid.GetFieldErrors(), valid.GetWarnings()...)
	shown = append(shown, &pluginv1.FieldError{Message: verdict.GetMessage()})
	return errors.Join(leaks(connect, nil), leaks(test, nil), leaks(validate, shown))
}

// tryConfig sends a config to every method that takes one and returns the first answer that is no clean refusal, else the
// last refusal.
func (s *suite) tryConfig(ctx context.Context, t *providerv1.ClusterType, config []byte) ([]*pluginv1.FieldError, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	clean := func(err error) bool {
		return status.Code(err) == codes.InvalidArgument && !strings.Contains(err.Error(), marker)
	}
	_, err := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: t.GetName(), Config: config})
	if !clean(err) {
		return nil, err
	}
	if s.can(pluginv1.Capability_CAPABILITY_TEST_CONNECTION) {
		_, err = s.provider.TestConnection(ctx, &providerv1.TestConnectionRequest{ClusterType: t.GetName(), Config: config})
		if !clean(err) {
			return nil, err
		}
	}
	if !s.can(pluginv1.Capability_CAPABILITY_VALIDATE_CONFIG) {
		return nil, err
	}
	answer, err := s.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: t.GetName(), Config: config})
	return append(answer.GetFieldErrors(), answer.GetWarnings()...), err
}

func connects(ctx context.Context, s *suite) error {
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		return s.connect(ctx, t, config)
	})
}

// connect makes one call and checks the answer. UNAVAILABLE is an answer too: what the provider needs may not be here.
func (s *suite) connect(ctx context.Context, t *providerv1.ClusterType, config []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterId: "conformance", ClusterType: t.GetName(), Config: config})
	if status.Code(err) == codes.Unavailable {
		return contained(s.alive(ctx))
	}
	if err != nil {
		return fmt.Errorf("Connect: %w; give a working config with WithCluster", err)
	}
	switch c := answer.GetConnection().(type) {
	case *providerv1.ConnectResponse_Kubeconfig:
		if n := len(c.Kubeconfig); n == 0 || n > 1<<20 {
			return fmt.Errorf("Connect gives a kubeconfig of %d bytes", n)
		}
	case *providerv1.ConnectResponse_BackendEnvironment:
	default:
		return errors.New("Connect gives neither a kubeconfig nor the backend's environment")
	}
	if len(answer.GetReplacementConfig()) > 0 {
		compiled, err := schema.Compile(t.GetConfigSchema())
		if err != nil {
			return err
		}
		if _, errs := compiled.Check(answer.GetReplacementConfig()); len(errs) > 0 {
			return fmt.Errorf("the replacement config does not pass the type's schema: %w", errs)
		}
	}
	return nil
}

// alive tells an UNAVAILABLE of the author's from one of a dead connection.
func (s *suite) alive(ctx context.Context) error {
	_, err := s.describe(ctx, s.session)
	return err
}

func tests(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_TEST_CONNECTION) {
		return skip("leaves the test to the host")
	}
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		answer, err := s.provider.TestConnection(ctx, &providerv1.TestConnectionRequest{ClusterType: t.GetName(), Config: config})
		if err != nil {
			return fmt.Errorf("TestConnection: %w", err)
		}
		switch answer.GetClass() {
		case "ok", "dns", "refused", "timeout", "tls", "not-kubernetes", "credentials", "permissions":
		default:
			return fmt.Errorf("the class %q is not one of the contract's", answer.GetClass())
		}
		if answer.GetOk() != (answer.GetClass() == "ok") {
			return fmt.Errorf("ok is %t with the class %q", answer.GetOk(), answer.GetClass())
		}
		if answer.GetMessage() == "" {
			return errors.New("the message is empty")
		}
		return nil
	})
}

func describesRegistration(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_REGISTRATION) {
		return skip("has no self-service types")
	}
	return s.each(ctx, func(t *providerv1.ClusterType, _ []byte) error {
		if t.GetRegistrationStyle() != providerv1.RegistrationStyle_REGISTRATION_STYLE_SELF_SERVICE {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		answer, err := s.provider.DescribeRegistration(ctx, &providerv1.DescribeRegistrationRequest{ClusterType: t.GetName(), Config: []byte("{}")})
		if err != nil {
			return fmt.Errorf("DescribeRegistration: %w", err)
		}
		if len(answer.GetCommands()) == 0 || len(answer.GetScript()) == 0 {
			return errors.New("DescribeRegistration needs commands and a script")
		}
		for _, c := range answer.GetCommands() {
			if c.GetTitle() == "" || c.GetCommand() == "" {
				return errors.New("a registration command needs a title and a command")
			}
		}
		for _, payload := range []string{`{`, `[]`, `{"conformance": "` + marker + `"}`} {
			out, err := s.provider.CompleteRegistration(ctx, &providerv1.CompleteRegistrationRequest{
				ClusterType: t.GetName(), Config: []byte("{}"), Payload: []byte(payload),
			})
			if err := wellRefused(err, out.GetFieldErrors()); err != nil {
				return fmt.Errorf("the registration payload %q: %w", payload, err)
			}
			if err := leaks(err, out.GetFieldErrors()); err != nil {
				return err
			}
		}
		return nil
	})
}

func refusesType(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: "conformance-unknown", Config: []byte("{}")})
	if status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("Connect of an unknown type gives %s instead of INVALID_ARGUMENT", status.Code(err))
	}
	return nil
}

func providerSurvives(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return s.each(ctx, func(t *providerv1.ClusterType, _ []byte) error {
		for _, config := range []string{"", "null", "[]", `{"a":`, "\x00\xff", strings.Repeat("[", 20000)} {
			_, connect := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: t.GetName(), Config: []byte(config)})
			_, validate := s.provider.ValidateConfig(ctx, &providerv1.ValidateConfigRequest{ClusterType: t.GetName(), Config: []byte(config)})
			_, test := s.provider.TestConnection(ctx, &providerv1.TestConnectionRequest{ClusterType: t.GetName(), Config: []byte(config)})
			if err := errors.Join(contained(connect), contained(validate), contained(test)); err != nil {
				return err
			}
		}
		return nil
	})
}

func providerTakesLarge(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: "conformance-unknown", Config: large()})
	return contained(err)
}

func providerConcurrent(ctx context.Context, s *suite) error {
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		return together(ctx, func(ctx context.Context) error { return s.connect(ctx, t, config) })
	})
}

func providerDeadline(ctx context.Context, s *suite) error {
	return s.each(ctx, func(t *providerv1.ClusterType, config []byte) error {
		return endsWithDeadline(ctx, s, func(ctx context.Context) error {
			_, err := s.provider.Connect(ctx, &providerv1.ConnectRequest{ClusterType: t.GetName(), Config: config})
			return err
		})
	})
}

// large returns a JSON object just below the message limit.
func large() []byte {
	return []byte(`{"large":"` + strings.Repeat("x", 15<<20) + `"}`)
}
