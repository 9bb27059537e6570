package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
)

func selectorChecks() []check {
	return []check{
		{"implements exactly the capabilities that it names", selectorCapabilities},
		{"answers each placement, with a candidate when it selects", answersPlacements},
		{"lists only candidates, each once", listsCandidates},
		{"selects only storage backends that are offered", selectsStorage},
		{"survives requests without sense", selectorSurvives},
		{"takes large messages", selectorTakesLarge},
		{"answers concurrent calls", selectorConcurrent},
		{"ends a call with its deadline", selectorDeadline},
	}
}

func selectorCapabilities(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	_, cluster := s.selector.SelectCluster(ctx, request("none", nil))
	_, list := s.selector.SelectClusters(ctx, &selectorv1.SelectClustersRequest{User: someone, Project: somewhere})
	_, storage := s.selector.SelectStorage(ctx, &selectorv1.SelectStorageRequest{User: someone, Project: somewhere})
	return errors.Join(
		s.honest(pluginv1.Capability_CAPABILITY_SELECT_CLUSTER, cluster),
		s.honest(pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS, list),
		s.honest(pluginv1.Capability_CAPABILITY_SELECT_STORAGE, storage),
	)
}

var (
	someone   = &selectorv1.User{Id: "u1", Name: "conformance", Groups: []string{"a", "b"}}
	somewhere = &selectorv1.Project{Id: "p1", Name: "conformance", HomeClusterId: "home"}
)

// request is a placement of a process that asks for the given resources.
func request(name string, candidates []*selectorv1.Cluster, resources ...string) *selectorv1.SelectClusterRequest {
	asked := map[string]string{}
	for i := 0; i+1 < len(resources); i += 2 {
		asked[resources[i]] = resources[i+1]
	}
	return &selectorv1.SelectClusterRequest{
		User: someone, Project: somewhere,
		Process:    &selectorv1.Process{Id: "process", Name: name, Type: "conformance", Labels: map[string]string{"a": "b"}},
		Version:    &selectorv1.Version{Id: "v1", Number: 1, Image: "example.org/image:1", ResourceRequests: asked, ResourceLimits: asked, AttemptNumber: 1},
		Candidates: candidates,
	}
}

// clusters returns candidates of every kind: known and unknown capacity, full and overcommitted, with and without GPUs.
func clusters() []*selectorv1.Cluster {
	at := timestamppb.New(time.Unix(1_700_000_000, 0))
	capacity := func(gpus, free int64) *selectorv1.Capacity {
		return &selectorv1.Capacity{ObservedAt: at, Nodes: 3, Resources: []*selectorv1.ResourceCapacity{
			{Name: "cpu", NodeMax: 8000, NodeFreeMax: 4000, Total: 24000, Free: 9000},
			{Name: "memory", NodeMax: 32 << 30, NodeFreeMax: 8 << 30, Total: 96 << 30, Free: 20 << 30},
			{Name: "nvidia.com/gpu", NodeMax: gpus, NodeFreeMax: free, Total: 3 * gpus, Free: free},
		}}
	}
	return []*selectorv1.Cluster{
		{Id: "home", Name: "Home", Type: "same-as-backend", State: "ready", IsDefault: true},
		{Id: strings.Repeat("long-id.", 31), Name: "Ferne Wolke ☁", Type: "kubeconfig", State: "degraded", SortOrder: -5, Capacity: capacity(8, 3), ActiveAttempts: 12},
		{Id: "full", Name: "full", Type: "kubeconfig", State: "ready", Labels: map[string]string{"nagelfluh.io/gpu": "true"}, Capacity: capacity(4, -2)},
		{Id: "empty", Name: "empty", Type: "minikube", State: "unknown", Capacity: &selectorv1.Capacity{ObservedAt: at}},
	}
}

// placements are requests that any selector may meet.
func placements() []*selectorv1.SelectClusterRequest {
	all := clusters()
	out := []*selectorv1.SelectClusterRequest{request("no candidates", nil), request("no candidates, but a GPU", nil, "nvidia.com/gpu", "1")}
	for _, asked := range [][]string{
		nil,
		{"cpu", "500m", "memory", "1Gi"},
		{"nvidia.com/gpu", "1"},
		{"nvidia.com/gpu", "16"},
		{"amd.com/gpu", "2", "cpu", "64"},
		{"example.org/fpga", "1", "ephemeral-storage", "10Gi"},
	} {
		out = append(out, request("all", all, asked...), request("one", all[1:2], asked...), request("unknown capacity", all[:1], asked...))
	}
	dry := request("dry run", all)
	dry.DryRun, dry.Process.Id, dry.Version.Id, dry.Version.Number = true, "", "", 0
	retry := request("retry", all, "cpu", "1")
	retry.Version.AttemptNumber, retry.Version.PreviousClusterIds = 2, []string{"home", "a cluster that is gone"}
	bait := request("ineligible", all[:1], "nvidia.com/gpu", "1")
	bait.Ineligible = &selectorv1.IneligibleClusters{Clusters: []*selectorv1.IneligibleCluster{{Cluster: all[1], Reason: "cordoned"}}}
	alone := request("only ineligible", nil, "nvidia.com/gpu", "1")
	alone.Ineligible = bait.Ineligible
	return append(out, dry, retry, bait, alone)
}

func answersPlacements(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_SELECT_CLUSTER) {
		return skip("does not select a cluster")
	}
	for _, r := range placements() {
		if err := s.place(ctx, r); err != nil {
			return fmt.Errorf("placement %q of %v: %w", r.GetProcess().GetName(), r.GetVersion().GetResourceRequests(), err)
		}
	}
	return nil
}

// place makes one call and checks the answer. UNAVAILABLE is an answer too: what the selector needs may not be here.
func (s *suite) place(ctx context.Context, r *selectorv1.SelectClusterRequest) error {
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	answer, err := s.selector.SelectCluster(ctx, r)
	if status.Code(err) == codes.Unavailable {
		return s.alive(ctx)
	}
	if err != nil {
		return err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectClusterResponse_Selected:
		if !candidate(r.GetCandidates(), a.Selected.GetClusterId()) {
			return fmt.Errorf("it selects %q, which is not among the candidates", a.Selected.GetClusterId())
		}
		if a.Selected.GetReason() == "" {
			return errors.New("it selects without a reason")
		}
	case *selectorv1.SelectClusterResponse_Abstained:
	case *selectorv1.SelectClusterResponse_Refused:
		if a.Refused.GetReason() == "" {
			return errors.New("it refuses without a reason")
		}
		if action := a.Refused.GetAction(); action != selectorv1.RefusalAction_REFUSAL_ACTION_WAIT && action != selectorv1.RefusalAction_REFUSAL_ACTION_FAIL {
			return fmt.Errorf("it refuses with the action %s", action)
		}
	default:
		return errors.New("the answer is not set")
	}
	return nil
}

func candidate(candidates []*selectorv1.Cluster, id string) bool {
	for _, c := range candidates {
		if c.GetId() == id {
			return true
		}
	}
	return false
}

func listsCandidates(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS) {
		return skip("does not list clusters")
	}
	for _, candidates := range [][]*selectorv1.Cluster{nil, clusters()[:1], clusters()} {
		if err := s.list(ctx, candidates); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) list(ctx context.Context, candidates []*selectorv1.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	answer, err := s.selector.SelectClusters(ctx, &selectorv1.SelectClustersRequest{User: someone, Project: somewhere, Candidates: candidates})
	if status.Code(err) == codes.Unavailable {
		return s.alive(ctx)
	}
	if err != nil {
		return err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectClustersResponse_Clusters:
		seen := map[string]bool{}
		for _, id := range a.Clusters.GetClusterIds() {
			if seen[id] || !candidate(candidates, id) {
				return fmt.Errorf("it lists %q twice, or it is not among the candidates", id)
			}
			seen[id] = true
		}
	case *selectorv1.SelectClustersResponse_Abstained:
	default:
		return errors.New("the answer is not set")
	}
	return nil
}

func selectsStorage(ctx context.Context, s *suite) error {
	if !s.can(pluginv1.Capability_CAPABILITY_SELECT_STORAGE) {
		return skip("does not select storage")
	}
	backends := []*selectorv1.StorageBackend{{Id: "s1", Name: "one", Type: "s3", IsDefault: true}, {Id: "s2", Name: "two", Type: "s3"}}
	for _, offered := range [][]*selectorv1.StorageBackend{nil, backends[:1], backends} {
		if err := s.store(ctx, offered); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) store(ctx context.Context, backends []*selectorv1.StorageBackend) error {
	ctx, cancel := context.WithTimeout(ctx, selectLimit)
	defer cancel()
	answer, err := s.selector.SelectStorage(ctx, &selectorv1.SelectStorageRequest{User: someone, Project: somewhere, Backends: backends})
	if status.Code(err) == codes.Unavailable {
		return s.alive(ctx)
	}
	if err != nil {
		return err
	}
	switch a := answer.GetAnswer().(type) {
	case *selectorv1.SelectStorageResponse_Selected:
		for _, b := range backends {
			if b.GetId() == a.Selected.GetBackendId() && a.Selected.GetReason() != "" {
				return nil
			}
		}
		return fmt.Errorf("it selects %q without a reason, or it is not among the backends", a.Selected.GetBackendId())
	case *selectorv1.SelectStorageResponse_Abstained:
		return nil
	}
	return errors.New("the answer is not set")
}

func selectorSurvives(ctx context.Context, s *suite) error {
	odd := request("odd", []*selectorv1.Cluster{{}, {Id: "x", Capacity: &selectorv1.Capacity{}}},
		"nvidia.com/gpu", "many", "cpu", "-1", "", "", "memory", "1e999999999", strings.Repeat("r", 10000), "1")
	for _, r := range []*selectorv1.SelectClusterRequest{{}, odd} {
		ctx, cancel := context.WithTimeout(ctx, selectLimit)
		defer cancel()
		_, cluster := s.selector.SelectCluster(ctx, r)
		_, list := s.selector.SelectClusters(ctx, &selectorv1.SelectClustersRequest{Candidates: r.GetCandidates()})
		_, storage := s.selector.SelectStorage(ctx, &selectorv1.SelectStorageRequest{})
		if err := errors.Join(contained(cluster), contained(list), contained(storage)); err != nil {
			return err
		}
	}
	return nil
}

func selectorTakesLarge(ctx context.Context, s *suite) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	big := clusters()
	big[0].Labels = map[string]string{"large": string(large())}
	_, cluster := s.selector.SelectCluster(ctx, request("large", big))
	_, list := s.selector.SelectClusters(ctx, &selectorv1.SelectClustersRequest{User: someone, Project: somewhere, Candidates: big})
	return errors.Join(contained(cluster), contained(list))
}

func selectorConcurrent(ctx context.Context, s *suite) error {
	return together(ctx, s.anyCall)
}

func selectorDeadline(ctx context.Context, s *suite) error {
	return endsWithDeadline(ctx, s, s.anyCall)
}

// anyCall makes one call of each method that the plugin has.
func (s *suite) anyCall(ctx context.Context) error {
	var errs []error
	if s.can(pluginv1.Capability_CAPABILITY_SELECT_CLUSTER) {
		errs = append(errs, s.place(ctx, request("any", clusters(), "nvidia.com/gpu", "1")))
	}
	if s.can(pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS) {
		errs = append(errs, s.list(ctx, clusters()))
	}
	if s.can(pluginv1.Capability_CAPABILITY_SELECT_STORAGE) {
		errs = append(errs, s.store(ctx, nil))
	}
	return errors.Join(errs...)
}
