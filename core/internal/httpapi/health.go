package httpapi

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
)

func (h *handlers) GetClusterHistory(ctx context.Context, r gen.GetClusterHistoryRequestObject) (gen.GetClusterHistoryResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	c, err := h.o.Clusters.Find(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	all, err := h.o.Store.ClusterHistory(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetClusterHistory200JSONResponse{Items: each(all, func(c cluster.Change) gen.HealthChange {
		return gen.HealthChange{At: c.At, From: string(c.From), To: string(c.To), Reason: c.Reason, Message: c.Message}
	})}, nil
}

func toCondition(c cluster.Condition) gen.Condition {
	return gen.Condition{Type: string(c.Type), Status: gen.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Since: c.Since}
}
