package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

func (h *handlers) TestConnection(ctx context.Context, r gen.TestConnectionRequestObject) (gen.TestConnectionResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b := r.Body
	report, err := h.o.Clusters.TestNew(ctx, cluster.NewCluster{
		Type: b.Type, ProviderConfig: b.ProviderConfig, Namespace: b.Namespace, QueueName: b.QueueName,
	})
	if err != nil {
		return nil, err
	}
	out, err := toReport(&report)
	return gen.TestConnection200JSONResponse(out), err
}

func (h *handlers) TestClusterConnection(ctx context.Context, r gen.TestClusterConnectionRequestObject) (gen.TestClusterConnectionResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	c, err := h.o.Clusters.Find(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	b := r.Body
	report, err := h.o.Clusters.TestRow(ctx, c.ID, cluster.Patch{
		Type: b.Type, ProviderConfig: b.ProviderConfig, Namespace: b.Namespace, QueueName: b.QueueName,
	})
	if err != nil {
		return nil, err
	}
	out, err := toReport(&report)
	return gen.TestClusterConnection200JSONResponse(out), err
}

func (h *handlers) CordonCluster(ctx context.Context, r gen.CordonClusterRequestObject) (gen.CordonClusterResponseObject, error) {
	who, err := requireAdmin(ctx)
	if err != nil {
		return nil, err
	}
	out, tag, err := h.cordon(ctx, r.Cluster, &cluster.Cordon{By: who.UserID, Reason: r.Body.Reason, At: time.Now().UTC().Truncate(time.Microsecond)})
	return gen.CordonCluster200JSONResponse{Body: out, Headers: gen.CordonCluster200ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) UncordonCluster(ctx context.Context, r gen.UncordonClusterRequestObject) (gen.UncordonClusterResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	out, tag, err := h.cordon(ctx, r.Cluster, nil)
	return gen.UncordonCluster200JSONResponse{Body: out, Headers: gen.UncordonCluster200ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) TakeOverCluster(ctx context.Context, r gen.TakeOverClusterRequestObject) (gen.TakeOverClusterResponseObject, error) {
	who, err := requireAdmin(ctx)
	if err != nil {
		return nil, err
	}
	c, err := h.o.Clusters.Find(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	if c, err = h.o.Clusters.TakeOver(ctx, c.ID, who.UserID); err != nil {
		return nil, err
	}
	out, tag, err := h.one(ctx, c, nil)
	return gen.TakeOverCluster200JSONResponse{Body: out, Headers: gen.TakeOverCluster200ResponseHeaders{ETag: tag}}, err
}

func (h *handlers) cordon(ctx context.Context, ref string, cordon *cluster.Cordon) (gen.Cluster, string, error) {
	c, err := h.o.Clusters.Find(ctx, ref)
	if err != nil {
		return gen.Cluster{}, "", err
	}
	if c, err = h.o.Clusters.Cordon(ctx, c.ID, cordon); err != nil {
		return gen.Cluster{}, "", err
	}
	return h.one(ctx, c, nil)
}

func toReport(r *cluster.Report) (out gen.ConnectionReport, err error) {
	if r == nil {
		return out, nil
	}
	// The contract describes the report as it is: a test holds the two equal.
	raw, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return out, fmt.Errorf("encode a connection report: %w", err)
	}
	if out.Phases == nil {
		out.Phases = []gen.ConnectionPhase{}
	}
	return out, nil
}

func toRemoval(c cluster.Cluster, a cluster.Abandonment) gen.ClusterRemoval {
	return gen.ClusterRemoval{
		ClusterID: c.ID, ClusterName: c.Name, Reached: a.Reached,
		Attempts: each(a.Attempts, func(a cluster.AbandonedAttempt) gen.RemovedAttempt {
			return gen.RemovedAttempt{
				AttemptID: a.AttemptID, VersionID: a.VersionID, Was: gen.State(a.Was), State: gen.State(a.State), Reason: a.Reason,
				Namespace: a.Namespace, JobName: a.JobName, MayStillRun: a.MayStillRun,
			}
		}),
	}
}

// limitOf reads a limit that is null for none; nil: it was not sent.
func limitOf(raw json.RawMessage) (*cluster.Limit, error) {
	if raw == nil {
		return nil, nil
	}
	l := &cluster.Limit{}
	if err := json.Unmarshal(raw, &l.Seconds); err != nil {
		return nil, problem.InField(problem.Invalid, "max_runtime_seconds", "is no whole number of seconds, or null for no limit")
	}
	return l, nil
}
