package kube

import (
	"context"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// Connection is a provider's answer: how to reach one cluster.
type Connection struct {
	// Kubeconfig is YAML or JSON text; it passes the kubeconfig policy before use. Empty with Backend.
	Kubeconfig []byte
	// Backend says to use the environment of this process: the in-cluster account, else the default kubeconfig loading
	// rules. It is trusted and exempt from the kubeconfig policy, so only providers that the operator trusts may say it.
	Backend bool
	// ExpiresAt is when the credentials end; zero: not known to end. Connect is called again before.
	ExpiresAt time.Time
	// ReplacementConfig is a provider config to store in place of the present one; nil: none.
	ReplacementConfig []byte
}

// Connector asks the provider of a cluster's type for a connection. Errors carry a sentence that an admin may read and
// no secret. Implementations are safe for concurrent use and return when ctx ends.
type Connector interface {
	Connect(ctx context.Context, c cluster.Cluster) (Connection, error)
}

// Source reads cluster rows. It returns an error that wraps cluster.ErrNotFound for an unknown or removed id.
type Source interface {
	Cluster(ctx context.Context, id string) (cluster.Cluster, error)
}
