package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// TestMain acts as a plugin when the binary is started under a plugin's name.
func TestMain(m *testing.M) {
	info := sdk.Info{Name: "conformance", Version: "1"}
	switch filepath.Base(os.Args[0]) {
	case "selector-good", "provider-wrong-kind":
		sdk.Serve(info, goodSelector{})
		return
	case "provider-good":
		sdk.Serve(info, goodProvider{})
		return
	case "provider-logs":
		sdk.Serve(info, logsConfig{})
		return
	case "selector-dies":
		sdk.Serve(info, diesSelector{})
		return
	case "selector-silent":
		return
	}
	goleak.VerifyTestMain(m)
}

// installed copies this binary under a plugin's name.
func installed(t *testing.T, name string) Target {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	return Binary(path)
}

// goodSelector does all that the contract allows.
type goodSelector struct{}

type selectorConfig struct {
	Label  string `json:"label" jsonschema:"default=zone,minLength=1"`
	Secret string `json:"secret,omitempty" jsonschema_extras:"x-nagelfluh-secret=true"`
}

func (goodSelector) ConfigSchema() []byte { return schema.MustOf[selectorConfig]() }

func (goodSelector) Configure(_ context.Context, raw json.RawMessage) error {
	_, err := schema.Decode[selectorConfig](raw)
	return err
}

func (goodSelector) SelectCluster(_ context.Context, r selector.Request) (selector.Answer, error) {
	if len(r.Candidates) == 0 {
		return selector.Wait("there is no cluster"), nil
	}
	return selector.Select(r.Candidates[0].ID, "it is the first"), nil
}

func (goodSelector) SelectClusters(_ context.Context, r selector.ListRequest) (selector.Choice, error) {
	if len(r.Candidates) == 1 {
		return selector.ChooseAny("there is but one"), nil
	}
	var ids []string
	for _, c := range r.Candidates {
		ids = append(ids, c.ID)
	}
	return selector.Choose(ids...), nil
}

func (goodSelector) SelectStorage(_ context.Context, r selector.StorageRequest) (selector.StorageAnswer, error) {
	if len(r.Backends) == 0 {
		return selector.AbstainBackend("there is none"), nil
	}
	return selector.SelectBackend(r.Backends[0].ID, "it is the first"), nil
}

// goodProvider does all that the contract allows.
type goodProvider struct{}

type providerConfig struct {
	Server string `json:"server" jsonschema:"format=uri"`
	Token  string `json:"token" jsonschema:"minLength=1" jsonschema_extras:"x-nagelfluh-secret=true"`
}

const goodConfig = `{"server": "https://example.org", "token": "t"}`

func (goodProvider) Types() []provider.Type {
	return []provider.Type{{Name: "good", Title: "Good", Schema: schema.MustOf[providerConfig](), Style: provider.SelfService}}
}

func (goodProvider) Connect(_ context.Context, r provider.Request) (provider.Connection, error) {
	return provider.Connection{Kubeconfig: []byte("apiVersion: v1"), ExpiresAt: time.Now().Add(time.Hour), ReplacementConfig: r.Config}, nil
}

func (goodProvider) ValidateConfig(_ context.Context, r provider.Request) (provider.Valid, error) {
	config, err := schema.Decode[providerConfig](r.Config)
	if err != nil {
		return provider.Valid{}, err
	}
	config.Server = strings.TrimSuffix(config.Server, "/")
	return provider.Valid{Config: config}, nil
}

func (goodProvider) TestConnection(context.Context, provider.Request) (provider.Verdict, error) {
	return provider.Verdict{Class: provider.OK, Message: "fine"}, nil
}

func (goodProvider) DescribeRegistration(context.Context, provider.Request) (provider.Registration, error) {
	return provider.Registration{Commands: []provider.Command{{Title: "Run", Command: "true"}}, Script: []byte("#!/bin/sh")}, nil
}

func (goodProvider) CompleteRegistration(_ context.Context, _ provider.Request, payload json.RawMessage) (any, error) {
	return schema.Decode[providerConfig](payload)
}

func TestGood(t *testing.T) {
	info := sdk.Info{Name: "good", Version: "1", DocsURL: "https://example.org/docs"}
	t.Run("selector in memory", func(t *testing.T) {
		Selector(t, InMemory(info, func() any { return goodSelector{} }), WithConfig(`{"label": "zone"}`))
	})
	t.Run("provider in memory", func(t *testing.T) {
		Provider(t, InMemory(info, func() any { return goodProvider{} }), WithCluster("good", goodConfig))
	})
	t.Run("selector binary", func(t *testing.T) { Selector(t, installed(t, "selector-good")) })
	t.Run("provider binary", func(t *testing.T) {
		Provider(t, installed(t, "provider-good"), WithCluster("good", goodConfig))
	})
}

// The bad plugins below each break one rule.

type logsConfig struct{ goodProvider }

func (logsConfig) ValidateConfig(_ context.Context, r provider.Request) (provider.Valid, error) {
	hclog.Default().Info("validating", "config", string(r.Config))
	return provider.Valid{Config: r.Config}, nil
}

type diesSelector struct{ goodSelector }

func (diesSelector) SelectCluster(context.Context, selector.Request) (selector.Answer, error) {
	os.Exit(3)
	return selector.Answer{}, nil
}

type zeroAnswer struct{}

func (zeroAnswer) SelectCluster(context.Context, selector.Request) (selector.Answer, error) {
	return selector.Answer{}, nil
}

type unknownCluster struct{}

func (unknownCluster) SelectCluster(context.Context, selector.Request) (selector.Answer, error) {
	return selector.Select("nowhere", "why not"), nil
}

type panics struct{}

func (panics) SelectCluster(_ context.Context, r selector.Request) (selector.Answer, error) {
	return selector.Select(r.Candidates[0].ID, "the first"), nil
}

// deaf ignores its deadline until it is released.
type deaf struct{ release chan struct{} }

func (d deaf) SelectCluster(_ context.Context, r selector.Request) (selector.Answer, error) {
	if r.Process.Name == "any" {
		<-d.release
	}
	return selector.Abstain(""), nil
}

type changing struct{ goodProvider }

func (changing) ValidateConfig(_ context.Context, r provider.Request) (provider.Valid, error) {
	config, err := schema.Decode[providerConfig](r.Config)
	config.Server += "/more"
	return provider.Valid{Config: config}, err
}

type leaking struct{ goodProvider }

func (leaking) ValidateConfig(_ context.Context, r provider.Request) (provider.Valid, error) {
	config, err := schema.Decode[providerConfig](r.Config)
	if err == nil && config.Token != "t" {
		err = errors.New("bad token " + config.Token)
	}
	return provider.Valid{Config: config}, err
}

type neither struct{ goodProvider }

func (neither) Connect(context.Context, provider.Request) (provider.Connection, error) {
	return provider.Connection{}, nil
}

type badTest struct{ goodProvider }

func (badTest) TestConnection(context.Context, provider.Request) (provider.Verdict, error) {
	return provider.Verdict{Class: "perhaps", Message: "who knows"}, nil
}

type credulous struct{ goodProvider }

func (credulous) CompleteRegistration(context.Context, provider.Request, json.RawMessage) (any, error) {
	return providerConfig{Server: "https://example.org", Token: "t"}, nil
}

// raw is a plugin without the sdk: the generated services with single methods replaced.
type raw struct {
	pluginv1.UnimplementedPluginServiceServer
	providerv1.UnimplementedProviderServiceServer
	selectorv1.UnimplementedSelectorServiceServer
	describe  func(*pluginv1.DescribeResponse)
	configure func() (*pluginv1.ConfigureResponse, error)
	types     func(*providerv1.ListClusterTypesResponse)
	connect   func(*providerv1.ConnectRequest) (*providerv1.ConnectResponse, error)
	choose    func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse
	list      func(*selectorv1.SelectClustersRequest) *selectorv1.SelectClustersResponse
	storage   *selectorv1.SelectStorageResponse
	kind      pluginv1.Kind
}

func (r *raw) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	d := &pluginv1.DescribeResponse{Name: "raw", Version: "1", Kind: r.kind}
	if r.choose != nil {
		d.Capabilities = append(d.Capabilities, pluginv1.Capability_CAPABILITY_SELECT_CLUSTER)
	}
	if r.list != nil {
		d.Capabilities = append(d.Capabilities, pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS)
	}
	if r.storage != nil {
		d.Capabilities = append(d.Capabilities, pluginv1.Capability_CAPABILITY_SELECT_STORAGE)
	}
	if r.describe != nil {
		r.describe(d)
	}
	return d, nil
}

func (r *raw) Configure(_ context.Context, in *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if r.configure != nil {
		return r.configure()
	}
	if string(in.GetConfig()) != "{}" {
		return nil, status.Error(codes.InvalidArgument, "takes no configuration")
	}
	return &pluginv1.ConfigureResponse{}, nil
}

func (r *raw) ListClusterTypes(context.Context, *providerv1.ListClusterTypesRequest) (*providerv1.ListClusterTypesResponse, error) {
	out := &providerv1.ListClusterTypesResponse{Types: []*providerv1.ClusterType{{
		Name: "raw", Title: "Raw", ConfigSchema: []byte(`{"type": "object"}`),
		RegistrationStyle: providerv1.RegistrationStyle_REGISTRATION_STYLE_FORM,
	}}}
	if r.types != nil {
		r.types(out)
	}
	return out, nil
}

func (r *raw) Connect(_ context.Context, in *providerv1.ConnectRequest) (*providerv1.ConnectResponse, error) {
	if r.connect != nil {
		return r.connect(in)
	}
	if in.GetClusterType() != "raw" || !json.Valid(in.GetConfig()) || in.GetConfig()[0] != '{' {
		return nil, status.Error(codes.InvalidArgument, "what is this?")
	}
	return &providerv1.ConnectResponse{Connection: &providerv1.ConnectResponse_Kubeconfig{Kubeconfig: []byte("{}")}}, nil
}

func (r *raw) SelectCluster(ctx context.Context, in *selectorv1.SelectClusterRequest) (*selectorv1.SelectClusterResponse, error) {
	if r.choose == nil {
		return r.UnimplementedSelectorServiceServer.SelectCluster(ctx, in)
	}
	return r.choose(in), nil
}

func (r *raw) SelectClusters(ctx context.Context, in *selectorv1.SelectClustersRequest) (*selectorv1.SelectClustersResponse, error) {
	if r.list == nil {
		return r.UnimplementedSelectorServiceServer.SelectClusters(ctx, in)
	}
	return r.list(in), nil
}

func (r *raw) SelectStorage(ctx context.Context, in *selectorv1.SelectStorageRequest) (*selectorv1.SelectStorageResponse, error) {
	if r.storage == nil {
		return r.UnimplementedSelectorServiceServer.SelectStorage(ctx, in)
	}
	return r.storage, nil
}

func rawSelector(r raw) Target {
	r.kind = pluginv1.Kind_KIND_SELECTOR
	if r.choose == nil && r.list == nil && r.storage == nil {
		r.choose = func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
			return &selectorv1.SelectClusterResponse{Answer: &selectorv1.SelectClusterResponse_Abstained{Abstained: &selectorv1.Abstained{}}}
		}
	}
	return Services(func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterPluginServiceServer(s, &r)
		selectorv1.RegisterSelectorServiceServer(s, &r)
	})
}

func rawProvider(r raw) Target {
	r.kind = pluginv1.Kind_KIND_PROVIDER
	return Services(func(s grpc.ServiceRegistrar) {
		pluginv1.RegisterPluginServiceServer(s, &r)
		providerv1.RegisterProviderServiceServer(s, &r)
	})
}

func TestRawPluginsPass(t *testing.T) {
	t.Run("provider", func(t *testing.T) { Provider(t, rawProvider(raw{}), WithCluster("raw", `{}`)) })
	t.Run("selector", func(t *testing.T) { Selector(t, rawSelector(raw{})) })
}

// TestBad holds each rule against a plugin that breaks it.
func TestBad(t *testing.T) {
	memory := func(impl any) Target {
		return InMemory(sdk.Info{Name: "bad", Version: "1"}, func() any { return impl })
	}
	describe := func(f func(*pluginv1.DescribeResponse)) Target { return rawSelector(raw{describe: f}) }
	calls := 0
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	tests := map[string]struct {
		target   Target
		provider bool
		check    string // that must fail
		says     string // part of the error
	}{
		"no name":         {describe(func(d *pluginv1.DescribeResponse) { d.Name = "" }), false, "describes itself", "name needs"},
		"no version":      {describe(func(d *pluginv1.DescribeResponse) { d.Version = "" }), false, "describes itself", "version"},
		"endless title":   {describe(func(d *pluginv1.DescribeResponse) { d.Title = strings.Repeat("x", 201) }), false, "describes itself", "title"},
		"odd docs":        {describe(func(d *pluginv1.DescribeResponse) { d.DocsUrl = "javascript:alert(1)" }), false, "describes itself", "docs_url"},
		"unstable":        {describe(func(d *pluginv1.DescribeResponse) { calls++; d.Title = strings.Repeat("x", calls%7) }), false, "describes itself", "differs"},
		"other kind":      {describe(func(d *pluginv1.DescribeResponse) { d.Kind = 0 }), false, "describes itself", "kind is"},
		"foreign ability": {describe(func(d *pluginv1.DescribeResponse) { d.Capabilities = append(d.Capabilities, 1) }), false, "describes itself", "no capability of"},
		"no ability":      {describe(func(d *pluginv1.DescribeResponse) { d.Capabilities = nil }), false, "describes itself", "at least one"},
		"hidden ability":  {describe(func(d *pluginv1.DescribeResponse) { d.Capabilities = nil }), false, "exactly the capabilities", "not named"},
		"false ability":   {describe(func(d *pluginv1.DescribeResponse) { d.Capabilities = append(d.Capabilities, 5) }), false, "exactly the capabilities", "not implemented"},
		"remote schema": {describe(func(d *pluginv1.DescribeResponse) {
			d.ConfigSchema = []byte(`{"type":"object","properties":{"a":{"$ref":"https://example.org"}}}`)
		}), false, "schema within", "profile"},
		"huge schema": {describe(func(d *pluginv1.DescribeResponse) {
			d.ConfigSchema = []byte(`{"type":"object","title":"` + strings.Repeat("x", 1<<16) + `"}`)
		}), false, "schema within", "at most"},
		"takes anything": {rawSelector(raw{configure: func() (*pluginv1.ConfigureResponse, error) { return &pluginv1.ConfigureResponse{}, nil }}), false, "refuses configuration", "accepted"},
		"unset answer": {rawSelector(raw{choose: func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
			return &selectorv1.SelectClusterResponse{}
		}}), false, "answers each placement", "not set"},
		"unknown action":        {rawSelector(raw{choose: refuse(7, "because")}), false, "answers each placement", "the action"},
		"refuses mutely":        {rawSelector(raw{choose: refuse(1, "")}), false, "answers each placement", "without a reason"},
		"raw elsewhere":         {rawSelector(raw{choose: choose("elsewhere")}), false, "answers each placement", "not among"},
		"lists strangers":       {rawSelector(raw{list: list("stranger")}), false, "lists only candidates", "not among"},
		"lists twice":           {rawSelector(raw{list: list("home", "home")}), false, "lists only candidates", "twice"},
		"unset list":            {rawSelector(raw{list: func(*selectorv1.SelectClustersRequest) *selectorv1.SelectClustersResponse { return nil }}), false, "lists only candidates", "not set"},
		"unset storage":         {rawSelector(raw{storage: &selectorv1.SelectStorageResponse{}}), false, "selects only storage", "not set"},
		"zero answer":           {memory(zeroAnswer{}), false, "answers each placement", "answered wrongly"},
		"sdk elsewhere":         {memory(unknownCluster{}), false, "answers each placement", "nowhere"},
		"panics on nobody":      {memory(panics{}), false, "survives requests", "panicked"},
		"ignores deadlines":     {memory(deaf{release}), false, "ends a call with its deadline", "still runs"},
		"dies":                  {installed(t, "selector-dies"), false, "answers each placement", ""},
		"never serves":          {installed(t, "selector-silent"), false, "starts", "does not start"},
		"selects as a provider": {installed(t, "provider-wrong-kind"), false, "file name", "selector-"},

		"no types":     {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types = nil }}), true, "lists its cluster types", "no type"},
		"type name":    {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types[0].Name = "Raw Metal" }}), true, "lists its cluster types", "lower-case"},
		"type twice":   {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types = append(r.Types, r.Types[0]) }}), true, "lists its cluster types", "twice"},
		"no style":     {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types[0].RegistrationStyle = 0 }}), true, "lists its cluster types", "style"},
		"no registrar": {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types[0].RegistrationStyle = 2 }}), true, "lists its cluster types", "CAPABILITY_REGISTRATION"},
		"no schema":    {rawProvider(raw{types: func(r *providerv1.ListClusterTypesResponse) { r.Types[0].ConfigSchema = nil }}), true, "lists its cluster types", "schema"},
		"unset": {rawProvider(raw{connect: func(*providerv1.ConnectRequest) (*providerv1.ConnectResponse, error) {
			return &providerv1.ConnectResponse{}, nil
		}}), true, "connects with", "neither"},
		"serves all": {rawProvider(raw{connect: func(*providerv1.ConnectRequest) (*providerv1.ConnectResponse, error) {
			return &providerv1.ConnectResponse{}, nil
		}}), true, "does not serve", "INVALID_ARGUMENT"},
		"sdk neither":     {memory(neither{}), true, "connects with", "answered wrongly"},
		"never the same":  {memory(changing{}), true, "validates into itself", "another one"},
		"tells the token": {memory(leaking{}), true, "without showing secrets", "secret field"},
		"logs the token":  {installed(t, "provider-logs"), true, "without showing secrets", "the log shows"},
		"odd verdict":     {memory(badTest{}), true, "verdict", "answered wrongly"},
		"believes all":    {memory(credulous{}), true, "registration", "accepted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			only := func(o *options) { o.only = test.check }
			run := CheckSelector
			if test.provider {
				run = CheckProvider
			}
			results := run(t.Context(), test.target, only, WithCluster("good", goodConfig), WithCluster("raw", "{}"))
			for _, r := range results {
				if r.Err != nil && strings.Contains(r.Check, test.check) && strings.Contains(r.Err.Error(), test.says) {
					return
				}
			}
			t.Errorf("no check %q failed with %q: %v", test.check, test.says, results)
		})
	}
}

func refuse(action selectorv1.RefusalAction, reason string) func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
	return func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
		return &selectorv1.SelectClusterResponse{Answer: &selectorv1.SelectClusterResponse_Refused{
			Refused: &selectorv1.Refused{Reason: reason, Action: action},
		}}
	}
}

func choose(id string) func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
	return func(*selectorv1.SelectClusterRequest) *selectorv1.SelectClusterResponse {
		return &selectorv1.SelectClusterResponse{Answer: &selectorv1.SelectClusterResponse_Selected{
			Selected: &selectorv1.Selected{ClusterId: id, Reason: "because"},
		}}
	}
}

func list(ids ...string) func(*selectorv1.SelectClustersRequest) *selectorv1.SelectClustersResponse {
	return func(*selectorv1.SelectClustersRequest) *selectorv1.SelectClustersResponse {
		return &selectorv1.SelectClustersResponse{Answer: &selectorv1.SelectClustersResponse_Clusters{
			Clusters: &selectorv1.ClusterList{ClusterIds: ids},
		}}
	}
}
