package app

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
)

// connector lets the connection test ask the plugin host, whose errors become refusals as they are of a config.
type connector struct{ host *plugin.Host }

func (c connector) Connect(ctx context.Context, row cluster.Cluster) (kube.Connection, error) {
	conn, err := c.host.Connect(ctx, row)
	if err != nil {
		return kube.Connection{}, configRefusal(row.Type, err)
	}
	return conn, nil
}
