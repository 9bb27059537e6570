package kube

import (
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// Trial is a client for one look at a connection that nothing works with yet: it goes the way of all clients, on a
// transport of its own, without rate limit and without renewal. Close ends it.
type Trial struct {
	*Client
	// Backend says that it is the backend's own environment.
	Backend bool
	// Warnings are those of the kubeconfig policy.
	Warnings []string
}

// Try judges what a provider gave for a row, and makes a client of it. Nothing is dialled. The error is a
// *kubeconfig.Refusal when the policy refuses the kubeconfig.
func (r *Registry) Try(row cluster.Cluster, conn Connection) (*Trial, error) {
	now := time.Now()
	policy := r.o.Policy
	policy.Now = now
	t, err := resolve(conn, policy, r.o.Backend, now)
	if err != nil {
		return nil, err
	}
	l, err := newLink(row.ID, t, r.o.AllowCIDRs, r.o.ProxyFromEnvironment, nil)
	if err != nil {
		return nil, err
	}
	c, err := newClient(l, r.namespace(row), flowcontrol.NewFakeAlwaysRateLimiter(), r.o.UserAgent)
	if err != nil {
		return nil, err
	}
	return &Trial{Client: c, Backend: conn.Backend, Warnings: t.warnings}, nil
}

// Close closes every connection.
func (t *Trial) Close() { t.link.close(0) }
