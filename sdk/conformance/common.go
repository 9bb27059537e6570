package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// The contract's deadlines.
const (
	describeLimit = 5 * time.Second
	selectLimit   = 5 * time.Second
	callLimit     = 30 * time.Second
)

func commonChecks() []check {
	return []check{
		{"describes itself completely and always the same", describesItself},
		{"is of the kind that its file name says", kindAgrees},
		{"has a configuration schema within the profile", schemaWithinProfile},
		{"refuses configuration that does not fit, without showing secrets", refusesGarbage},
		{"ends with its host", endsWithHost},
		{"says what it is when it is run by hand", runByHand},
	}
}

func describesItself(ctx context.Context, s *suite) error {
	d := s.description
	again, err := s.describe(ctx, s.session)
	if err != nil {
		return fmt.Errorf("the second Describe: %w", err)
	}
	var errs []error
	want := func(holds bool, what string) {
		if !holds {
			errs = append(errs, errors.New(what))
		}
	}
	want(proto.Equal(d, again), "the second Describe differs from the first")
	want(d.GetName() != "" && utf8.RuneCountInString(d.GetName()) <= 100, "name needs 1 to 100 characters")
	want(d.GetVersion() != "", "version is empty")
	want(utf8.RuneCountInString(d.GetTitle()) <= 200, "title has more than 200 characters")
	if d.GetDocsUrl() != "" {
		u, err := url.Parse(d.GetDocsUrl())
		want(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "docs_url is no http or https address")
	}
	want(d.GetKind() == s.kind, fmt.Sprintf("kind is %s, not %s", d.GetKind(), s.kind))
	selects := false
	seen := map[pluginv1.Capability]bool{}
	for _, c := range d.GetCapabilities() {
		want(!seen[c], fmt.Sprintf("%s is named twice", c))
		seen[c] = true
		ofSelector := c >= pluginv1.Capability_CAPABILITY_SELECT_CLUSTER && c <= pluginv1.Capability_CAPABILITY_SELECT_STORAGE
		known := pluginv1.Capability_name[int32(c)] != "" && c != pluginv1.Capability_CAPABILITY_UNSPECIFIED
		want(known && ofSelector == (s.kind == pluginv1.Kind_KIND_SELECTOR), fmt.Sprintf("%s is no capability of a %s", c, s.kind))
		selects = selects || ofSelector
	}
	want(selects || s.kind != pluginv1.Kind_KIND_SELECTOR, "a selector needs at least one of SELECT_CLUSTER, SELECT_CLUSTERS and SELECT_STORAGE")
	return errors.Join(errs...)
}

func kindAgrees(_ context.Context, s *suite) error {
	if s.path == "" {
		return skip("not a binary")
	}
	prefix := handshake.ProviderPrefix
	if s.description.GetKind() == pluginv1.Kind_KIND_SELECTOR {
		prefix = handshake.SelectorPrefix
	}
	if base := filepath.Base(s.path); !strings.HasPrefix(base, prefix) || base == prefix {
		return fmt.Errorf("the file name %q does not start with %q", base, prefix)
	}
	return nil
}

func schemaWithinProfile(_ context.Context, s *suite) error {
	raw := s.description.GetConfigSchema()
	if len(raw) == 0 {
		return skip("takes no configuration")
	}
	compiled, err := schema.Compile(raw)
	if err != nil {
		return err
	}
	if _, errs := compiled.Check([]byte(s.opts.config)); len(errs) > 0 {
		return fmt.Errorf("the configuration that the plugin accepts does not pass its own schema: %w", errs)
	}
	return nil
}

// refusesGarbage starts a fresh plugin for each try, because Configure is called once.
func refusesGarbage(ctx context.Context, s *suite) error {
	var compiled *schema.Schema
	if raw := s.description.GetConfigSchema(); len(raw) > 0 {
		var err error
		if compiled, err = schema.Compile(raw); err != nil {
			return skip("its schema is not valid")
		}
	}
	for _, bad := range garbage(compiled, s.description.GetConfigSchema(), s.opts.config) {
		if err := s.refuses(ctx, bad); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) refuses(ctx context.Context, bad document) error {
	fresh, err := s.target.open(ctx)
	if err != nil {
		return err
	}
	defer s.end(fresh)
	if _, err := s.describe(ctx, fresh); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := fresh.plugin.Configure(ctx, &pluginv1.ConfigureRequest{Config: bad.json})
	if err := wellRefused(err, answer.GetFieldErrors()); err != nil {
		return fmt.Errorf("configuration that %s: %w", bad.what, err)
	}
	return leaks(err, answer.GetFieldErrors())
}

// wellRefused checks that a bad input was refused as the contract says.
func wellRefused(err error, errs []*pluginv1.FieldError) error {
	if err != nil {
		if code := status.Code(err); code != codes.InvalidArgument {
			return fmt.Errorf("refused with %s instead of field errors or INVALID_ARGUMENT: %s", code, status.Convert(err).Message())
		}
		return nil
	}
	if len(errs) == 0 {
		return errors.New("accepted")
	}
	return wellFormed(errs)
}

// wellFormed checks the form of field errors.
func wellFormed(errs []*pluginv1.FieldError) error {
	for _, e := range errs {
		if e.GetMessage() == "" {
			return fmt.Errorf("the field error of %q has no message", e.GetPath())
		}
		if e.GetPath() != "" && e.GetPath()[0] != '/' {
			return fmt.Errorf("the path %q is no JSON pointer", e.GetPath())
		}
	}
	return nil
}

// leaks looks for the planted secret in an answer. The log is looked at when the plugin has ended, see [suite.end].
func leaks(err error, errs []*pluginv1.FieldError) error {
	if err != nil && strings.Contains(err.Error(), marker) {
		return errors.New("the error shows the value of a secret field")
	}
	for _, e := range errs {
		if strings.Contains(e.GetMessage(), marker) || strings.Contains(e.GetPath(), marker) {
			return errors.New("a field error or warning shows the value of a secret field")
		}
	}
	return nil
}

// runByHand starts the binary without a host.
func runByHand(ctx context.Context, s *suite) error {
	if s.path == "" {
		return skip("not a binary")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return errors.New("it does not end")
	case err == nil:
		return errors.New("it exits with 0")
	case len(out) == 0:
		return errors.New("it prints nothing")
	}
	return nil
}

// together makes a call many times at once and returns the first unexpected error.
func together(ctx context.Context, call func(context.Context) error) error {
	const callers = 32
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { errs[i] = call(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endsWithDeadline makes a call whose caller gives up at once, and sees that the plugin stops working on it.
func endsWithDeadline(ctx context.Context, s *suite, call func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	// Whether it was quick enough to answer does not matter here.
	_ = call(short)
	if s.running == nil {
		return nil
	}
	deadline := time.Now().Add(3 * time.Second)
	for s.running() > 0 {
		if time.Now().After(deadline) {
			return errors.New("three seconds after its caller's deadline the call still runs; use the context")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// contained checks the answer to a nonsensical request: any status is fine except those that speak of a crash.
func contained(err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return err
	case codes.Internal:
		if strings.Contains(err.Error(), "panicked") {
			return err
		}
	}
	return nil
}

// sameJSON compares two documents by value.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, _ := json.Marshal(x) // what was decoded can be encoded, with sorted keys
	two, _ := json.Marshal(y)
	return string(one) == string(two)
}
