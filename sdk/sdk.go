// Package sdk is all that the author of a Nagelfluh plugin needs: implement the interfaces of the provider or the
// selector package, and serve them in one line of main.
//
//	func main() {
//		sdk.Serve(sdk.Info{Name: "zone", Version: "1.0.0", Title: "Picks the cluster of the project's zone"}, &Selector{})
//	}
//
// A panic in a method becomes an error of that call, with its stack in the log. What is printed to stdout goes to stderr.
// The process ends when its host does. Messages may have 16 MB. Log with hclog.Default or the standard log package: Serve
// has both write JSON lines to stderr, which the host puts into its own log under the plugin's name.
package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"unicode/utf8"

	"google.golang.org/grpc"

	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// Info is what a plugin says of itself, for people. The operator's name of a plugin is its file name.
type Info struct {
	// Name is what the plugin calls itself, at most 100 characters. Required.
	Name string
	// Version is the plugin's own version. Required.
	Version string
	// Title is one line for lists, at most 200 characters; empty: the name.
	Title string
	// DocsURL is an http or https address; empty: none.
	DocsURL string
}

// Configurable is an optional part of every plugin: it takes configuration from the operator.
type Configurable interface {
	// ConfigSchema returns the JSON Schema of the configuration, usually schema.MustOf of a struct. It is called once.
	ConfigSchema() []byte
	// Configure puts the configuration into force: a JSON object that passes the schema, defaults filled in; schema.Decode
	// reads it. It is called once, before the first call of any other method except Types. It may hold secrets: never log
	// it. What is wrong with it is returned as field.Errors, and the plugin is not used then.
	Configure(ctx context.Context, config json.RawMessage) error
}

// Plugin is an implementation with everything around it that speaks the contract. [Serve] is the usual way to one; test
// harnesses use it directly.
type Plugin struct {
	info     Info
	kind     pluginv1.Kind
	impl     any
	abled    []pluginv1.Capability
	config   []byte         // the raw config schema; empty: takes none
	schema   *schema.Schema // nil: takes none
	provider *providerServer
	calls    *calls
}

// New checks an implementation and wraps it. The implementation is a provider.Provider, or at least one of
// selector.Selector, selector.ClusterLister and selector.StorageSelector, and may be [Configurable]. The error names
// everything that an author has to mend.
func New(info Info, impl any) (*Plugin, error) {
	p := &Plugin{info: info, impl: impl, calls: newCalls()}
	errs := []error{info.check()}
	_, isProvider := impl.(provider.Provider)
	p.abled = selectorCapabilities(impl)
	switch {
	case isProvider && len(p.abled) > 0:
		errs = append(errs, fmt.Errorf("%T is a provider and a selector; a plugin is one of them", impl))
	case isProvider:
		p.kind = pluginv1.Kind_KIND_PROVIDER
		p.abled = providerCapabilities(impl)
		server, err := newProviderServer(impl.(provider.Provider))
		errs = append(errs, err)
		p.provider = server
	case len(p.abled) > 0:
		p.kind = pluginv1.Kind_KIND_SELECTOR
	default:
		errs = append(errs, fmt.Errorf("%T implements neither provider.Provider nor any interface of the selector package; "+
			"guard it with: var _ selector.Selector = (*YourType)(nil)", impl))
	}
	errs = append(errs, signatures(impl))
	if c, ok := impl.(Configurable); ok {
		p.config = c.ConfigSchema()
		compiled, err := schema.Compile(p.config)
		if err != nil {
			errs = append(errs, fmt.Errorf("ConfigSchema: %w", err))
		}
		p.schema = compiled
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("plugin %q cannot be served: %w", info.Name, err)
	}
	return p, nil
}

// signatures finds methods that are named like one of an interface but do not have its signature: by assertion alone they
// would be left out in silence.
func signatures(impl any) error {
	var errs []error
	of := func(implemented bool, name string, methods ...string) {
		for _, m := range methods {
			if _, has := reflect.TypeOf(impl).MethodByName(m); has && !implemented {
				errs = append(errs, fmt.Errorf("%T has a method %s, but does not implement %s; compare the signatures", impl, m, name))
				return
			}
		}
	}
	if impl == nil {
		return nil
	}
	_, ok := impl.(Configurable)
	of(ok, "sdk.Configurable", "ConfigSchema", "Configure")
	_, ok = impl.(provider.Provider)
	of(ok, "provider.Provider", "Connect", "Types")
	_, ok = impl.(provider.Validator)
	of(ok, "provider.Validator", "ValidateConfig")
	_, ok = impl.(provider.Tester)
	of(ok, "provider.Tester", "TestConnection")
	_, ok = impl.(provider.Registrar)
	of(ok, "provider.Registrar", "DescribeRegistration", "CompleteRegistration")
	_, ok = impl.(selector.Selector)
	of(ok, "selector.Selector", "SelectCluster")
	_, ok = impl.(selector.ClusterLister)
	of(ok, "selector.ClusterLister", "SelectClusters")
	_, ok = impl.(selector.StorageSelector)
	of(ok, "selector.StorageSelector", "SelectStorage")
	return errors.Join(errs...)
}

// check says what is missing in the info.
func (i Info) check() error {
	var errs []error
	if i.Name == "" || utf8.RuneCountInString(i.Name) > 100 {
		errs = append(errs, errors.New("Info.Name needs 1 to 100 characters"))
	}
	if i.Version == "" {
		errs = append(errs, errors.New("Info.Version is empty"))
	}
	if utf8.RuneCountInString(i.Title) > 200 {
		errs = append(errs, errors.New("Info.Title has more than 200 characters"))
	}
	if i.DocsURL != "" {
		if u, err := url.Parse(i.DocsURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			errs = append(errs, errors.New("Info.DocsURL is no http or https address"))
		}
	}
	return errors.Join(errs...)
}

func providerCapabilities(impl any) []pluginv1.Capability {
	var abled []pluginv1.Capability
	if _, ok := impl.(provider.Validator); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_VALIDATE_CONFIG)
	}
	if _, ok := impl.(provider.Tester); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_TEST_CONNECTION)
	}
	if _, ok := impl.(provider.Registrar); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_REGISTRATION)
	}
	return abled
}

func selectorCapabilities(impl any) []pluginv1.Capability {
	var abled []pluginv1.Capability
	if _, ok := impl.(selector.Selector); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_SELECT_CLUSTER)
	}
	if _, ok := impl.(selector.ClusterLister); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS)
	}
	if _, ok := impl.(selector.StorageSelector); ok {
		abled = append(abled, pluginv1.Capability_CAPABILITY_SELECT_STORAGE)
	}
	return abled
}

// Register adds the plugin's services to a server that [Plugin.NewServer] made.
func (p *Plugin) Register(s grpc.ServiceRegistrar) {
	pluginv1.RegisterPluginServiceServer(s, &pluginServer{plugin: p})
	if p.provider != nil {
		p.provider.register(s)
		return
	}
	registerSelector(s, p.impl)
}
