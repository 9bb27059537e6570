package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

func (h *handlers) ListClusters(ctx context.Context, _ gen.ListClustersRequestObject) (gen.ListClustersResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	all, err := h.o.Store.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	view, err := h.clusterView(ctx)
	if err != nil {
		return nil, err
	}
	return gen.ListClusters200JSONResponse{Items: each(all, view.cluster)}, nil
}

// clusterView is what the answer about a cluster holds beside its row.
type clusterView struct {
	live      map[string]int32
	served    map[string]string
	defaultID string
}

func (h *handlers) clusterView(ctx context.Context) (v clusterView, err error) {
	if v.live, err = h.o.Store.LiveCounts(ctx); err != nil {
		return v, err
	}
	v.served = h.o.Plugins.ServedTypes()
	v.defaultID, err = h.o.Store.DefaultCluster(ctx)
	return v, err
}

// one returns the answer about one cluster with its ETag.
func (h *handlers) one(ctx context.Context, c cluster.Cluster, warnings []string) (gen.Cluster, string, error) {
	view, err := h.clusterView(ctx)
	if err != nil {
		return gen.Cluster{}, "", err
	}
	out := view.cluster(c)
	out.Warnings = warnings
	return out, fmt.Sprintf("%q", strconv.FormatInt(c.Revision, 10)), nil
}

func (h *handlers) CreateCluster(ctx context.Context, r gen.CreateClusterRequestObject) (gen.CreateClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b := r.Body
	n := cluster.NewCluster{
		Name: string(b.Name), Type: b.Type, ProviderConfig: b.ProviderConfig, Namespace: b.Namespace, Labels: b.Labels,
		SortOrder: b.SortOrder, Active: b.Active == nil || *b.Active, QueueName: b.QueueName,
		Consent: cluster.Consent{SkipTest: given(r.Params.ConnectionTest) == gen.CreateClusterParamsConnectionTestSkip, Identity: given(r.Params.ConfirmIdentity)},
	}
	if b.MaxRuntimeSeconds != 0 { // the contract refuses a zero that was sent
		n.MaxRuntime = &b.MaxRuntimeSeconds
	}
	c, warnings, err := h.o.Clusters.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	out, tag, err := h.one(ctx, c, warnings)
	return gen.CreateCluster201JSONResponse{Body: out, Headers: gen.CreateCluster201ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) GetCluster(ctx context.Context, r gen.GetClusterRequestObject) (gen.GetClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	c, err := h.o.Clusters.Find(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	out, tag, err := h.one(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	test, err := h.o.Clusters.LastTest(ctx, c)
	if err != nil {
		return nil, err
	}
	out.LastTest, err = toReport(test)
	return gen.GetCluster200JSONResponse{Body: out, Headers: gen.GetCluster200ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) UpdateCluster(ctx context.Context, r gen.UpdateClusterRequestObject) (gen.UpdateClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	c, revision, err := h.matched(ctx, r.Cluster, given(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	b := r.Body
	limit, err := limitOf(b.MaxRuntimeSeconds)
	if err != nil {
		return nil, err
	}
	c, warnings, err := h.o.Clusters.Update(ctx, c.ID, revision, cluster.Patch{
		Name: b.Name, Type: b.Type, ProviderConfig: b.ProviderConfig, Namespace: b.Namespace, Labels: b.Labels,
		SortOrder: b.SortOrder, Active: b.Active, QueueName: b.QueueName, MaxRuntime: limit,
		Consent: cluster.Consent{SkipTest: given(r.Params.ConnectionTest) == gen.UpdateClusterParamsConnectionTestSkip, Identity: given(r.Params.ConfirmIdentity)},
	})
	if err != nil {
		return nil, err
	}
	out, tag, err := h.one(ctx, c, warnings)
	return gen.UpdateCluster200JSONResponse{Body: out, Headers: gen.UpdateCluster200ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) DeleteCluster(ctx context.Context, r gen.DeleteClusterRequestObject) (gen.DeleteClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	c, revision, err := h.matched(ctx, r.Cluster, given(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	if given(r.Params.Force) {
		removed, outcome, err := h.o.Clusters.Remove(ctx, c.ID, revision)
		if err != nil {
			return nil, err
		}
		return gen.DeleteCluster200JSONResponse(toRemoval(removed, outcome)), nil
	}
	if err := h.o.Clusters.Delete(ctx, c.ID, revision); err != nil {
		return nil, err
	}
	return gen.DeleteCluster204Response{}, nil
}

// matched returns the cluster and the revision that If-Match demands; nil: any.
func (h *handlers) matched(ctx context.Context, ref, ifMatch string) (cluster.Cluster, *int64, error) {
	c, err := h.o.Clusters.Find(ctx, ref)
	if err != nil || ifMatch == "" || ifMatch == "*" {
		return c, nil, err
	}
	n, err := strconv.ParseInt(strings.Trim(ifMatch, `"`), 10, 64)
	if err != nil { // an ETag that was never given matches nothing
		return c, nil, problem.New(problem.Stale, "If-Match %s is no ETag of cluster %q: read it again", ifMatch, c.Name)
	}
	return c, &n, nil
}

func (h *handlers) ListClusterTypes(ctx context.Context, _ gen.ListClusterTypesRequestObject) (gen.ListClusterTypesResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	types := slices.Clone(h.o.Plugins.Types())
	slices.SortStableFunc(types, func(a, b plugin.TypeInfo) int {
		return strings.Compare(a.Name+"\x00"+a.Plugin, b.Name+"\x00"+b.Plugin)
	})
	return gen.ListClusterTypes200JSONResponse{Items: each(types, toClusterType)}, nil
}

func (h *handlers) ListPlugins(ctx context.Context, _ gen.ListPluginsRequestObject) (gen.ListPluginsResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	return gen.ListPlugins200JSONResponse{Items: each(h.o.Plugins.List(), toPlugin)}, nil
}

func (h *handlers) GetDefaultCluster(ctx context.Context, _ gen.GetDefaultClusterRequestObject) (gen.GetDefaultClusterResponseObject, error) {
	c, _, err := h.o.Clusters.Default(ctx)
	return gen.GetDefaultCluster200JSONResponse{ClusterID: c.ID, ClusterName: c.Name}, err
}

func (h *handlers) SetDefaultCluster(ctx context.Context, r gen.SetDefaultClusterRequestObject) (gen.SetDefaultClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	if err := h.o.Clusters.SetDefault(ctx, r.Body.Cluster); err != nil {
		return nil, err
	}
	c, _, err := h.o.Clusters.Default(ctx)
	return gen.SetDefaultCluster200JSONResponse{ClusterID: c.ID, ClusterName: c.Name}, err
}

// ClusterFinder lets submissions name clusters.
func ClusterFinder(c *cluster.Service) func(ctx context.Context, ref string) (string, bool, error) {
	return func(ctx context.Context, ref string) (string, bool, error) {
		found, err := c.Find(ctx, ref)
		if errors.Is(err, cluster.ErrNotFound) {
			return "", false, nil
		}
		return found.ID, err == nil, err
	}
}
