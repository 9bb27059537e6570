package app

import (
	"context"
	"errors"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

var errUnreadable = errors.New("the stored provider config cannot be decrypted: give the cluster a new one; `nagelfluh secrets status` says more")

// readable keeps a provider from taking a config that cannot be decrypted for none.
type readable struct{ kube.Connector }

func (r readable) Connect(ctx context.Context, c cluster.Cluster) (kube.Connection, error) {
	if c.ProviderConfig == nil {
		return kube.Connection{}, errUnreadable
	}
	return r.Connector.Connect(ctx, c)
}
