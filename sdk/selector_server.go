package sdk

import (
	"context"

	"google.golang.org/grpc"

	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// selectorServer serves selector.v1 for an implementation.
type selectorServer struct {
	selectorv1.UnimplementedSelectorServiceServer
	impl any
}

func registerSelector(r grpc.ServiceRegistrar, impl any) {
	selectorv1.RegisterSelectorServiceServer(r, &selectorServer{impl: impl})
}

// SelectCluster implements selector.v1.
func (s *selectorServer) SelectCluster(ctx context.Context, r *selectorv1.SelectClusterRequest) (*selectorv1.SelectClusterResponse, error) {
	chooser, ok := s.impl.(selector.Selector)
	if !ok {
		return s.UnimplementedSelectorServiceServer.SelectCluster(ctx, r)
	}
	answer, err := chooser.SelectCluster(ctx, selector.Request{
		User: user(r.GetUser()), Project: project(r.GetProject()), Process: process(r.GetProcess()),
		Version: version(r.GetVersion()), Candidates: clusters(r.GetCandidates()), DryRun: r.GetDryRun(),
		Ineligible: ineligible(r.GetIneligible()), IneligibleKnown: r.GetIneligible() != nil,
	})
	if err != nil {
		return nil, toStatus(err)
	}
	const method = "SelectCluster"
	if answer.Reason == "" && (answer.Kind == selector.Selected || answer.Kind == selector.Refused || answer.Kind == selector.Waiting) {
		return nil, badAnswer(method, "%s without a reason", answer.Kind)
	}
	out := &selectorv1.SelectClusterResponse{}
	switch answer.Kind {
	case selector.Selected:
		if !holds(r.GetCandidates(), answer.ClusterID) {
			return nil, badAnswer(method, "it selected %q, which is not among the candidates", answer.ClusterID)
		}
		out.Answer = &selectorv1.SelectClusterResponse_Selected{Selected: &selectorv1.Selected{ClusterId: answer.ClusterID, Reason: answer.Reason}}
	case selector.Abstained:
		out.Answer = &selectorv1.SelectClusterResponse_Abstained{Abstained: &selectorv1.Abstained{Reason: answer.Reason}}
	case selector.Refused, selector.Waiting:
		action := selectorv1.RefusalAction_REFUSAL_ACTION_FAIL
		if answer.Kind == selector.Waiting {
			action = selectorv1.RefusalAction_REFUSAL_ACTION_WAIT
		}
		out.Answer = &selectorv1.SelectClusterResponse_Refused{Refused: &selectorv1.Refused{Reason: answer.Reason, Action: action}}
	default:
		return nil, badAnswer(method, "%s; use selector.Select, Abstain, Refuse or Wait", answer.Kind)
	}
	return out, nil
}

// SelectClusters implements selector.v1.
func (s *selectorServer) SelectClusters(ctx context.Context, r *selectorv1.SelectClustersRequest) (*selectorv1.SelectClustersResponse, error) {
	lister, ok := s.impl.(selector.ClusterLister)
	if !ok {
		return s.UnimplementedSelectorServiceServer.SelectClusters(ctx, r)
	}
	choice, err := lister.SelectClusters(ctx, selector.ListRequest{
		User: user(r.GetUser()), Project: project(r.GetProject()), Candidates: clusters(r.GetCandidates()),
	})
	if err != nil {
		return nil, toStatus(err)
	}
	const method = "SelectClusters"
	out := &selectorv1.SelectClustersResponse{}
	switch choice.Kind {
	case selector.Selected:
		seen := map[string]bool{}
		for _, id := range choice.ClusterIDs {
			if seen[id] || !holds(r.GetCandidates(), id) {
				return nil, badAnswer(method, "it chose %q, which is not among the candidates or was chosen twice", id)
			}
			seen[id] = true
		}
		out.Answer = &selectorv1.SelectClustersResponse_Clusters{Clusters: &selectorv1.ClusterList{ClusterIds: choice.ClusterIDs}}
	case selector.Abstained:
		out.Answer = &selectorv1.SelectClustersResponse_Abstained{Abstained: &selectorv1.Abstained{Reason: choice.Reason}}
	default:
		return nil, badAnswer(method, "%s; use selector.Choose or ChooseAny", choice.Kind)
	}
	return out, nil
}

// SelectStorage implements selector.v1.
func (s *selectorServer) SelectStorage(ctx context.Context, r *selectorv1.SelectStorageRequest) (*selectorv1.SelectStorageResponse, error) {
	chooser, ok := s.impl.(selector.StorageSelector)
	if !ok {
		return s.UnimplementedSelectorServiceServer.SelectStorage(ctx, r)
	}
	request := selector.StorageRequest{User: user(r.GetUser()), Project: project(r.GetProject())}
	known := map[string]bool{}
	for _, b := range r.GetBackends() {
		known[b.GetId()] = true
		request.Backends = append(request.Backends, selector.Backend{
			ID: b.GetId(), Name: b.GetName(), Type: b.GetType(), Labels: b.GetLabels(), Default: b.GetIsDefault(),
		})
	}
	answer, err := chooser.SelectStorage(ctx, request)
	if err != nil {
		return nil, toStatus(err)
	}
	const method = "SelectStorage"
	out := &selectorv1.SelectStorageResponse{}
	switch answer.Kind {
	case selector.Selected:
		if !known[answer.BackendID] || answer.Reason == "" {
			return nil, badAnswer(method, "it selected %q without a reason, or it is not among the backends", answer.BackendID)
		}
		out.Answer = &selectorv1.SelectStorageResponse_Selected{Selected: &selectorv1.SelectedStorage{BackendId: answer.BackendID, Reason: answer.Reason}}
	case selector.Abstained:
		out.Answer = &selectorv1.SelectStorageResponse_Abstained{Abstained: &selectorv1.Abstained{Reason: answer.Reason}}
	default:
		return nil, badAnswer(method, "%s; use selector.SelectBackend or AbstainBackend", answer.Kind)
	}
	return out, nil
}

// holds says whether an id is among the candidates.
func holds(candidates []*selectorv1.Cluster, id string) bool {
	for _, c := range candidates {
		if c.GetId() == id {
			return true
		}
	}
	return false
}

func user(u *selectorv1.User) selector.User {
	return selector.User{ID: u.GetId(), Name: u.GetName(), Groups: u.GetGroups(), Admin: u.GetAdmin()}
}

func project(p *selectorv1.Project) selector.Project {
	return selector.Project{ID: p.GetId(), Name: p.GetName(), Labels: p.GetLabels(), HomeClusterID: p.GetHomeClusterId()}
}

func process(p *selectorv1.Process) selector.Process {
	return selector.Process{ID: p.GetId(), Name: p.GetName(), Type: p.GetType(), Labels: p.GetLabels()}
}

func version(v *selectorv1.Version) selector.Version {
	return selector.Version{
		ID: v.GetId(), Number: v.GetNumber(), Image: v.GetImage(),
		Requests: v.GetResourceRequests(), Limits: v.GetResourceLimits(),
		NodeSelector: v.GetNodeSelector(), Labels: v.GetLabels(),
		AttemptNumber: v.GetAttemptNumber(), PreviousClusterIDs: v.GetPreviousClusterIds(),
	}
}

func clusters(in []*selectorv1.Cluster) []selector.Cluster {
	out := make([]selector.Cluster, len(in))
	for i, c := range in {
		out[i] = cluster(c)
	}
	return out
}

func ineligible(in *selectorv1.IneligibleClusters) []selector.Ineligible {
	out := make([]selector.Ineligible, len(in.GetClusters()))
	for i, c := range in.GetClusters() {
		out[i] = selector.Ineligible{Cluster: cluster(c.GetCluster()), Reason: c.GetReason()}
	}
	return out
}

func cluster(c *selectorv1.Cluster) selector.Cluster {
	return selector.Cluster{
		ID: c.GetId(), Name: c.GetName(), Type: c.GetType(), Labels: c.GetLabels(), SortOrder: c.GetSortOrder(),
		KubernetesVersion: c.GetKubernetesVersion(), State: c.GetState(), Capacity: capacity(c.GetCapacity()),
		ActiveAttempts: c.GetActiveAttempts(), Default: c.GetIsDefault(),
	}
}

// capacity keeps unknown apart from nothing.
func capacity(c *selectorv1.Capacity) *selector.Capacity {
	if c == nil {
		return nil
	}
	out := &selector.Capacity{ObservedAt: c.GetObservedAt().AsTime(), Nodes: c.GetNodes(), Resources: make(map[string]selector.Resource, len(c.GetResources()))}
	for _, r := range c.GetResources() {
		out.Resources[r.GetName()] = selector.Resource{
			NodeMax: r.GetNodeMax(), NodeFreeMax: r.GetNodeFreeMax(), Total: r.GetTotal(), Free: r.GetFree(),
		}
	}
	return out
}
