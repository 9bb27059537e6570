package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// This file is the facade of the contract's version 1: what is generated stops here. It checks the shape of every
// answer; an unset or unknown member is an error.

// description is what a plugin says of itself.
type description struct {
	name, version, title, docsURL string
	able                          map[pluginv1.Capability]bool
	schema                        *schema.Schema // nil: takes no configuration
}

// clusterType is a type that a provider offers.
type clusterType struct {
	TypeInfo
	schema *schema.Schema
}

// authorsFault is the remedy for a breach of the contract.
const authorsFault = "update the plugin, or tell its author"

func breach(format string, args ...any) *problem {
	return broken(fmt.Sprintf(format, args...), authorsFault)
}

// describe asks who the plugin is and holds the answer against the contract. Unknown capabilities are returned apart.
func (in *instance) describe(ctx context.Context, hostVersion string, kind Kind) (d description, unknown []int32, err error) {
	r, err := in.plugin.Describe(ctx, &pluginv1.DescribeRequest{HostVersion: hostVersion})
	if err != nil {
		return description{}, nil, err
	}
	d = description{name: r.GetName(), version: r.GetVersion(), title: r.GetTitle(), docsURL: r.GetDocsUrl(), able: map[pluginv1.Capability]bool{}}
	kinds := map[pluginv1.Kind]Kind{pluginv1.Kind_KIND_PROVIDER: Provider, pluginv1.Kind_KIND_SELECTOR: Selector}
	said, known := kinds[r.GetKind()]
	switch {
	case !known:
		return d, nil, breach("it says of itself that it is neither a provider nor a selector (kind %d)", r.GetKind())
	case said != kind:
		return d, nil, broken(fmt.Sprintf("its file name says %s, but it says of itself that it is a %s", kind, said),
			fmt.Sprintf("rename the file to begin with %s-", said))
	case d.name == "" || utf8.RuneCountInString(d.name) > 100 || d.version == "" || len(d.version) > 200:
		return d, nil, breach("it gives no name of at most 100 characters or no version")
	case utf8.RuneCountInString(d.title) > 200:
		return d, nil, breach("its title has more than 200 characters")
	}
	if u, err := url.Parse(d.docsURL); d.docsURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
		return d, nil, breach("the address of its documentation is no http or https address")
	}
	if d.title == "" {
		d.title = d.name
	}
	for _, c := range r.GetCapabilities() {
		if _, named := pluginv1.Capability_name[int32(c)]; !named || c == pluginv1.Capability_CAPABILITY_UNSPECIFIED {
			unknown = append(unknown, int32(c))
			continue
		}
		d.able[c] = true
	}
	if len(r.GetConfigSchema()) > 0 {
		if d.schema, err = schema.Compile(r.GetConfigSchema()); err != nil {
			return d, unknown, breach("the schema of its configuration: %v", err)
		}
	}
	return d, unknown, nil
}

// configure hands over the configuration, which must have passed the schema.
func (in *instance) configure(ctx context.Context, config []byte) error {
	r, err := in.plugin.Configure(ctx, &pluginv1.ConfigureRequest{Config: config})
	if err != nil {
		return err
	}
	return invalid(r.GetFieldErrors())
}

// invalid makes an *InvalidConfig of field errors, or nil when there are none.
func invalid(errs []*pluginv1.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	return &InvalidConfig{Fields: fieldErrors(errs)}
}

func fieldErrors(errs []*pluginv1.FieldError) []FieldError {
	fields := make([]FieldError, 0, len(errs))
	for _, e := range errs {
		message := cut(e.GetMessage(), maxReason)
		if message == "" {
			message = "is not accepted; the plugin does not say why"
		}
		fields = append(fields, FieldError{Path: cut(e.GetPath(), maxReason), Message: message})
	}
	return fields
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
		return fmt.Errorf("does not pass the schema of cluster type %s: %v", t.Name, errs)
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

// selectCluster asks where an attempt goes.
func (in *instance) selectCluster(ctx context.Context, s *placement.Snapshot, r placement.Request) (placement.Answer, error) {
	seen := snapshotV1(s)
	answer, err := in.selector.SelectCluster(ctx, &selectorv1.SelectClusterRequest{
		User: userV1(r.User), Project: projectV1(r.Project),
		Process: &selectorv1.Process{Id: r.Process.ID, Name: r.Process.Name, Type: r.Process.Type, Labels: r.Process.Labels},
		Version: &selectorv1.Version{
			Id: r.Version.ID, Number: r.Version.Number, Image: r.Version.Spec.Image,
			ResourceRequests: r.Version.Spec.Requests, ResourceLimits: r.Version.Spec.Limits,
			NodeSelector: r.Version.Spec.NodeSelector, Labels: r.Version.Spec.Labels,
			AttemptNumber: r.AttemptNumber, PreviousClusterIds: r.PreviousClusters,
		},
		Candidates: seen.candidates, Ineligible: seen.ineligible, DryRun: r.DryRun,
	})
	if err != nil {
		return placement.Answer{}, err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectClusterResponse_Selected:
		id, reason := a.Selected.GetClusterId(), a.Selected.GetReason()
		if id == "" || strings.TrimSpace(reason) == "" {
			return placement.Answer{}, errors.New("it selected without naming a cluster or a reason")
		}
		return placement.Answer{Kind: placement.Selected, ClusterID: cut(id, maxReason), Reason: cut(reason, maxReason)}, nil
	case *selectorv1.SelectClusterResponse_Abstained:
		return placement.Answer{Kind: placement.Abstained, Reason: cut(a.Abstained.GetReason(), maxReason)}, nil
	case *selectorv1.SelectClusterResponse_Refused:
		action := a.Refused.GetAction()
		if action != selectorv1.RefusalAction_REFUSAL_ACTION_WAIT && action != selectorv1.RefusalAction_REFUSAL_ACTION_FAIL {
			return placement.Answer{}, fmt.Errorf("it refused without a known action (%d)", action)
		}
		if strings.TrimSpace(a.Refused.GetReason()) == "" {
			return placement.Answer{}, errors.New("it refused without a reason")
		}
		return placement.Answer{Kind: placement.Refused, Reason: cut(a.Refused.GetReason(), maxReason),
			Fail: action == selectorv1.RefusalAction_REFUSAL_ACTION_FAIL}, nil
	}
	return placement.Answer{}, errors.New("it answered neither selected, abstained nor refused")
}

// selectClusters asks what a user may choose from.
func (in *instance) selectClusters(ctx context.Context, s *placement.Snapshot, u placement.User, p placement.Project) (placement.Choice, error) {
	answer, err := in.selector.SelectClusters(ctx, &selectorv1.SelectClustersRequest{
		User: userV1(u), Project: projectV1(p), Candidates: snapshotV1(s).candidates,
	})
	if err != nil {
		return placement.Choice{}, err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectClustersResponse_Clusters:
		ids := a.Clusters.GetClusterIds()
		seen := make(map[string]bool, len(ids))
		for _, id := range ids {
			if id == "" || seen[id] {
				return placement.Choice{}, fmt.Errorf("its list of clusters holds %q twice or holds an empty id", cut(id, 300))
			}
			seen[id] = true
		}
		return placement.Choice{Clusters: ids}, nil
	case *selectorv1.SelectClustersResponse_Abstained:
		return placement.Choice{Abstained: true, Reason: cut(a.Abstained.GetReason(), maxReason)}, nil
	}
	return placement.Choice{}, errors.New("it answered neither with clusters nor abstained")
}

func userV1(u placement.User) *selectorv1.User {
	groups := u.Groups
	if !slices.IsSorted(groups) {
		groups = slices.Sorted(slices.Values(groups))
	}
	return &selectorv1.User{Id: u.ID, Name: u.Name, Groups: groups, Admin: u.Admin}
}

func projectV1(p placement.Project) *selectorv1.Project {
	return &selectorv1.Project{Id: p.ID, Name: p.Name, Labels: p.Labels, HomeClusterId: p.HomeCluster}
}

// snapshot is a placement.Snapshot as selectors get it.
type snapshot struct {
	candidates []*selectorv1.Cluster
	ineligible *selectorv1.IneligibleClusters // nil: not known
}

// snapshotV1 converts a snapshot once, however many selectors are asked about it.
func snapshotV1(s *placement.Snapshot) snapshot {
	return s.Memo(func() any {
		out := snapshot{candidates: make([]*selectorv1.Cluster, 0, len(s.Candidates))}
		for _, c := range s.Candidates {
			out.candidates = append(out.candidates, clusterV1(c))
		}
		if s.Ineligible != nil {
			out.ineligible = &selectorv1.IneligibleClusters{}
		}
		for _, c := range s.Ineligible {
			out.ineligible.Clusters = append(out.ineligible.Clusters, &selectorv1.IneligibleCluster{Cluster: clusterV1(c), Reason: c.Excluded})
		}
		return out
	}).(snapshot)
}

func clusterV1(c placement.Candidate) *selectorv1.Cluster {
	return &selectorv1.Cluster{
		Id: c.ID, Name: c.Name, Type: c.Type, Labels: c.Labels, SortOrder: c.SortOrder, KubernetesVersion: c.Version,
		State: string(c.Health), Capacity: capacityV1(c.Capacity), ActiveAttempts: c.Active, IsDefault: c.Default,
	}
}

// capacityV1 keeps unknown apart from nothing.
func capacityV1(c *cluster.Capacity) *selectorv1.Capacity {
	if c == nil {
		return nil
	}
	out := &selectorv1.Capacity{ObservedAt: timestamppb.New(orEpoch(c.ObservedAt)), Nodes: c.Nodes}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		r := c.Resources[name]
		out.Resources = append(out.Resources, &selectorv1.ResourceCapacity{
			Name: name, NodeMax: r.NodeMax, NodeFreeMax: r.NodeFreeMax, Total: r.Total, Free: r.Free,
		})
	}
	return out
}

// orEpoch keeps a zero time within what a protobuf timestamp may hold.
func orEpoch(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0)
	}
	return t
}
