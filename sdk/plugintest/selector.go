package plugintest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// SelectorPlugin calls a selector in memory, as a host does. It is safe for concurrent use.
type SelectorPlugin struct {
	client selectorv1.SelectorServiceClient
}

// Selector starts a selector for the test's time. The config is the operator's JSON; empty: none.
func Selector(t testing.TB, impl any, config string) *SelectorPlugin {
	t.Helper()
	return &SelectorPlugin{client: selectorv1.NewSelectorServiceClient(start(t, impl, config))}
}

// SelectCluster places one attempt.
func (p *SelectorPlugin) SelectCluster(ctx context.Context, r selector.Request) (selector.Answer, error) {
	in := &selectorv1.SelectClusterRequest{
		User: user(r.User), Project: project(r.Project),
		Process: &selectorv1.Process{Id: r.Process.ID, Name: r.Process.Name, Type: r.Process.Type, Labels: r.Process.Labels},
		Version: &selectorv1.Version{
			Id: r.Version.ID, Number: r.Version.Number, Image: r.Version.Image,
			ResourceRequests: r.Version.Requests, ResourceLimits: r.Version.Limits,
			NodeSelector: r.Version.NodeSelector, Labels: r.Version.Labels,
			AttemptNumber: r.Version.AttemptNumber, PreviousClusterIds: r.Version.PreviousClusterIDs,
		},
		Candidates: clusters(r.Candidates), DryRun: r.DryRun,
	}
	if r.IneligibleKnown {
		in.Ineligible = &selectorv1.IneligibleClusters{}
		for _, c := range r.Ineligible {
			in.Ineligible.Clusters = append(in.Ineligible.Clusters, &selectorv1.IneligibleCluster{Cluster: cluster(c.Cluster), Reason: c.Reason})
		}
	}
	answer, err := p.client.SelectCluster(ctx, in)
	if err != nil {
		return selector.Answer{}, plain(err)
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectClusterResponse_Selected:
		return selector.Select(a.Selected.GetClusterId(), a.Selected.GetReason()), nil
	case *selectorv1.SelectClusterResponse_Refused:
		if a.Refused.GetAction() == selectorv1.RefusalAction_REFUSAL_ACTION_WAIT {
			return selector.Wait(a.Refused.GetReason()), nil
		}
		return selector.Refuse(a.Refused.GetReason()), nil
	}
	return selector.Abstain(answer.GetAbstained().GetReason()), nil
}

// SelectClusters asks what a user may choose from.
func (p *SelectorPlugin) SelectClusters(ctx context.Context, r selector.ListRequest) (selector.Choice, error) {
	answer, err := p.client.SelectClusters(ctx, &selectorv1.SelectClustersRequest{
		User: user(r.User), Project: project(r.Project), Candidates: clusters(r.Candidates),
	})
	if err != nil {
		return selector.Choice{}, plain(err)
	}
	if list := answer.GetClusters(); list != nil {
		return selector.Choose(list.GetClusterIds()...), nil
	}
	return selector.ChooseAny(answer.GetAbstained().GetReason()), nil
}

// SelectStorage asks for the storage of a new project.
func (p *SelectorPlugin) SelectStorage(ctx context.Context, r selector.StorageRequest) (selector.StorageAnswer, error) {
	in := &selectorv1.SelectStorageRequest{User: user(r.User), Project: project(r.Project)}
	for _, b := range r.Backends {
		in.Backends = append(in.Backends, &selectorv1.StorageBackend{Id: b.ID, Name: b.Name, Type: b.Type, Labels: b.Labels, IsDefault: b.Default})
	}
	answer, err := p.client.SelectStorage(ctx, in)
	if err != nil {
		return selector.StorageAnswer{}, plain(err)
	}
	if s := answer.GetSelected(); s != nil {
		return selector.SelectBackend(s.GetBackendId(), s.GetReason()), nil
	}
	return selector.AbstainBackend(answer.GetAbstained().GetReason()), nil
}

func user(u selector.User) *selectorv1.User {
	return &selectorv1.User{Id: u.ID, Name: u.Name, Groups: u.Groups, Admin: u.Admin}
}

func project(p selector.Project) *selectorv1.Project {
	return &selectorv1.Project{Id: p.ID, Name: p.Name, Labels: p.Labels, HomeClusterId: p.HomeClusterID}
}

func clusters(in []selector.Cluster) []*selectorv1.Cluster {
	out := make([]*selectorv1.Cluster, len(in))
	for i, c := range in {
		out[i] = cluster(c)
	}
	return out
}

func cluster(c selector.Cluster) *selectorv1.Cluster {
	out := &selectorv1.Cluster{
		Id: c.ID, Name: c.Name, Type: c.Type, Labels: c.Labels, SortOrder: c.SortOrder, KubernetesVersion: c.KubernetesVersion,
		State: c.State, ActiveAttempts: c.ActiveAttempts, IsDefault: c.Default,
	}
	if c.Capacity == nil {
		return out
	}
	out.Capacity = &selectorv1.Capacity{ObservedAt: timestamppb.New(c.Capacity.ObservedAt), Nodes: c.Capacity.Nodes}
	for _, name := range slices.Sorted(maps.Keys(c.Capacity.Resources)) {
		r := c.Capacity.Resources[name]
		out.Capacity.Resources = append(out.Capacity.Resources, &selectorv1.ResourceCapacity{
			Name: name, NodeMax: r.NodeMax, NodeFreeMax: r.NodeFreeMax, Total: r.Total, Free: r.Free,
		})
	}
	return out
}
