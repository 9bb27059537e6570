package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
)

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

// selectStorage asks where a new project keeps its data.
func (in *instance) selectStorage(ctx context.Context, u placement.User, p placement.Project, offered []storage.Offer) (storage.Answer, error) {
	r := &selectorv1.SelectStorageRequest{User: userV1(u), Project: projectV1(p)}
	for _, o := range offered {
		r.Backends = append(r.Backends, &selectorv1.StorageBackend{Id: o.ID, Name: o.Name, Type: o.Type, Labels: o.Labels, IsDefault: o.Default})
	}
	answer, err := in.selector.SelectStorage(ctx, r)
	if err != nil {
		return storage.Answer{}, err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectStorageResponse_Selected:
		id, reason := a.Selected.GetBackendId(), a.Selected.GetReason()
		if id == "" || strings.TrimSpace(reason) == "" {
			return storage.Answer{}, errors.New("it selected without naming a storage backend or a reason")
		}
		return storage.Answer{BackendID: cut(id, maxReason), Reason: cut(reason, maxReason)}, nil
	case *selectorv1.SelectStorageResponse_Abstained:
		return storage.Answer{Abstained: true, Reason: cut(a.Abstained.GetReason(), maxReason)}, nil
	}
	return storage.Answer{}, errors.New("it answered neither selected nor abstained")
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

// snapshotOf is a placement.Snapshot as selectors get it.
type snapshotOf struct {
	candidates []*selectorv1.Cluster
	ineligible *selectorv1.IneligibleClusters // nil: not known
}

// snapshotV1 converts a snapshot once, however many selectors are asked about it.
func snapshotV1(s *placement.Snapshot) snapshotOf {
	return s.Memo(func() any {
		out := snapshotOf{candidates: make([]*selectorv1.Cluster, 0, len(s.Candidates))}
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
	}).(snapshotOf)
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
