// Package conformance is the suite that every provider and selector plugin must pass, whatever it is written in. It runs
// against an implementation in memory or against a built binary:
//
//	func TestConformance(t *testing.T) {
//		conformance.Selector(t, conformance.InMemory(info, func() any { return &Selector{} }))
//	}
//
//	func TestBinary(t *testing.T) {
//		conformance.Selector(t, conformance.Binary(buildSelector(t)))
//	}
//
// A provider whose cluster types need settings is given one working config a type with [WithCluster]; a plugin whose
// configuration has required fields is given one with [WithConfig].
package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// Result is the outcome of one check.
type Result struct {
	// Check is what is required, in a few words.
	Check string
	// Err says how the plugin failed; nil: it passed.
	Err error
	// Skipped says why the check did not apply; empty: it ran.
	Skipped string
}

// Option adds to a run.
type Option func(*options)

type options struct {
	config   string
	clusters map[string]string // by cluster type
	only     string            // run only checks whose name contains it; empty: all
}

// WithConfig gives the operator's configuration, a JSON object. Without it the plugin gets "{}".
func WithConfig(json string) Option { return func(o *options) { o.config = json } }

// WithCluster gives a provider config, a JSON object, with which Connect of that cluster type succeeds. Without it "{}"
// is used.
func WithCluster(clusterType, json string) Option {
	return func(o *options) { o.clusters[clusterType] = json }
}

// Provider runs the suite of providers as subtests.
func Provider(t *testing.T, target Target, opts ...Option) {
	t.Helper()
	report(t, CheckProvider(t.Context(), target, opts...))
}

// Selector runs the suite of selectors as subtests.
func Selector(t *testing.T, target Target, opts ...Option) {
	t.Helper()
	report(t, CheckSelector(t.Context(), target, opts...))
}

func report(t *testing.T, results []Result) {
	t.Helper()
	for _, r := range results {
		t.Run(r.Check, func(t *testing.T) {
			if r.Skipped != "" {
				t.Logf("does not apply: %s", r.Skipped)
			}
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
}

// CheckProvider runs the suite of providers outside of a test. It stops early when the context ends.
func CheckProvider(ctx context.Context, target Target, opts ...Option) []Result {
	return run(ctx, target, pluginv1.Kind_KIND_PROVIDER, append(commonChecks(), providerChecks()...), opts)
}

// CheckSelector runs the suite of selectors outside of a test. It stops early when the context ends.
func CheckSelector(ctx context.Context, target Target, opts ...Option) []Result {
	return run(ctx, target, pluginv1.Kind_KIND_SELECTOR, append(commonChecks(), selectorChecks()...), opts)
}

// check is one requirement. It returns an error when the plugin fails it, and skip when it does not apply.
type check struct {
	name string
	run  func(ctx context.Context, s *suite) error
}

// skip says why a check does not apply.
type skip string

// Error returns the reason.
func (s skip) Error() string { return string(s) }

// suite is one run against one plugin.
type suite struct {
	target Target
	kind   pluginv1.Kind
	opts   options
	*session
	description *pluginv1.DescribeResponse
	logged      bool // the planted secret was in the log of a plugin that has ended
}

// perCheck bounds one check, whatever the plugin does.
const perCheck = 90 * time.Second

func run(ctx context.Context, target Target, kind pluginv1.Kind, checks []check, opts []Option) []Result {
	s := &suite{target: target, kind: kind, opts: options{config: "{}", clusters: map[string]string{}}}
	for _, o := range opts {
		o(&s.opts)
	}
	results := []Result{{Check: "starts, describes itself and takes its configuration"}}
	if results[0].Err = s.begin(ctx); results[0].Err != nil {
		if s.session != nil {
			s.close()
		}
		return results
	}
	results = append(results, s.all(ctx, checks)...)
	s.end(s.session)
	if !strings.Contains(quietLog, s.opts.only) {
		return results
	}
	quiet := Result{Check: quietLog}
	if s.path == "" {
		quiet.Skipped = "not a binary"
	} else if s.logged {
		quiet.Err = errors.New("the log shows the value of a secret field")
	}
	return append(results, quiet)
}

// quietLog is judged behind all checks.
const quietLog = "writes a log without showing secrets"

// end closes a plugin, and then reads all that it has logged: it arrives behind the answers.
func (s *suite) end(session *session) {
	session.close()
	s.logged = s.logged || strings.Contains(session.log(), marker)
}

// all runs the checks one after another.
func (s *suite) all(ctx context.Context, checks []check) (results []Result) {
	for _, c := range checks {
		if ctx.Err() != nil {
			return append(results, Result{Check: c.name, Err: ctx.Err()})
		}
		if !strings.Contains(c.name, s.opts.only) {
			continue
		}
		results = append(results, s.one(ctx, c))
	}
	return results
}

// one runs a check, and afterwards sees that the plugin is still there for the next one.
func (s *suite) one(ctx context.Context, c check) Result {
	ctx, cancel := context.WithTimeout(ctx, perCheck)
	defer cancel()
	err := c.run(ctx, s)
	if reason := skip(""); errors.As(err, &reason) {
		return Result{Check: c.name, Skipped: string(reason)}
	}
	if _, alive := s.describe(ctx, s.session); alive != nil {
		if err == nil {
			err = fmt.Errorf("afterwards the plugin does not answer Describe: %w", alive)
		}
		// A crashed plugin must not fail every check that follows.
		s.end(s.session)
		if again := s.begin(ctx); again != nil {
			err = fmt.Errorf("%w; and it cannot be started again: %w", err, again)
		}
	}
	return Result{Check: c.name, Err: err}
}

// begin opens a session and brings the plugin to where a host has it before the first call of its own service.
func (s *suite) begin(ctx context.Context) error {
	session, err := s.target.open(ctx)
	if err != nil {
		return err
	}
	s.session = session
	if s.description, err = s.describe(ctx, session); err != nil {
		return fmt.Errorf("Describe: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := session.plugin.Configure(ctx, &pluginv1.ConfigureRequest{Config: []byte(s.opts.config)})
	if err != nil {
		return fmt.Errorf("Configure: %w", err)
	}
	if errs := answer.GetFieldErrors(); len(errs) > 0 {
		return fmt.Errorf("Configure refuses the configuration, give one with WithConfig: %s %s", errs[0].GetPath(), errs[0].GetMessage())
	}
	return nil
}

func (s *suite) describe(ctx context.Context, session *session) (*pluginv1.DescribeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	return session.plugin.Describe(ctx, &pluginv1.DescribeRequest{HostVersion: "conformance"})
}

// can says whether the plugin names a capability.
func (s *suite) can(c pluginv1.Capability) bool {
	for _, named := range s.description.GetCapabilities() {
		if named == c {
			return true
		}
	}
	return false
}
