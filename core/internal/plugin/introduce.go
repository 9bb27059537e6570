package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Deadlines of the calls at a start.
const (
	describeLimit  = 5 * time.Second
	configureLimit = 30 * time.Second
)

// introduce asks the plugin who it is, configures it, and asks a provider for its types.
func (s *slot) introduce(ctx context.Context, in *instance) error {
	var d description
	err := s.step(ctx, in, "Describe", describeLimit, func(ctx context.Context) (err error) {
		var unknown []int32
		if d, unknown, err = in.describe(ctx, s.host.o.HostVersion, s.kind); err == nil && len(unknown) > 0 {
			s.log.Info("the plugin names capabilities that this server does not know", "capabilities", unknown)
		}
		return err
	})
	if err != nil {
		return err
	}
	config, err := s.config(d)
	if err != nil {
		return err
	}
	err = s.step(ctx, in, "Configure", configureLimit, func(ctx context.Context) error { return in.configure(ctx, config) })
	if err != nil {
		return err
	}
	var types []clusterType
	if s.kind == Provider {
		err = s.step(ctx, in, "ListClusterTypes", describeLimit, func(ctx context.Context) (err error) {
			types, err = in.types(ctx, s.name)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.host.allowed(s, types); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.desc, s.types = &d, types
	s.mu.Unlock()
	return nil
}

// config is what the plugin is configured with, or what is wrong with it.
func (s *slot) config(d description) ([]byte, error) {
	given := s.cfg.Config
	if len(given) == 0 {
		given = []byte("{}")
	}
	if d.schema == nil {
		if string(given) != "{}" {
			return nil, refused("it takes no configuration, but one is given", "remove its config from the server's configuration")
		}
		return given, nil
	}
	filled, errs := d.schema.Check(given)
	if len(errs) > 0 {
		bad := &InvalidConfig{}
		for _, e := range errs {
			bad.Fields = append(bad.Fields, FieldError{Path: e.Path, Message: e.Message})
		}
		return nil, misconfigured(bad)
	}
	if s.describe().schema == nil { // the first time: only now is it known what is secret
		s.redact.forget()
	}
	s.redact.add(secretValues(d.schema, filled)...)
	return filled, nil
}

func misconfigured(bad *InvalidConfig) *problem {
	return refused("its "+bad.Error(), "correct its config in the server's configuration")
}

// step makes one call of the start.
func (s *slot) step(ctx context.Context, in *instance, method string, limit time.Duration, do func(context.Context) error) error {
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(call)
	var bad *problem
	var invalid *InvalidConfig
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return bad
	case errors.As(err, &invalid):
		return misconfigured(invalid)
	case status.Code(err) == codes.Unimplemented:
		return breach("it does not serve %s", method)
	}
	failed := s.callError(ctx, call, in, method, limit, err)
	if errors.As(failed, &invalid) && method == "Configure" {
		return misconfigured(invalid)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s gave no answer within the start limit of %s", method, s.host.o.StartLimit)
	}
	return errors.New(failed.message)
}
