package kube

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client reaches one cluster. It stays valid while credentials change beneath it; when the endpoint, the CA or the
// namespace of the cluster changes it is replaced: Done is closed and the registry gives another one.
//
// It is safe for concurrent use and its fields are read-only. Ask the registry for it at each piece of work and keep it
// only as long as that lasts. Every call needs a context with a deadline, except watches and log follows.
type Client struct {
	ClusterID string
	// Namespace is where the jobs of this cluster live.
	Namespace string
	// Clientset is the typed client, under the cluster's rate limit.
	Clientset kubernetes.Interface
	// Config is a copy of the configuration beneath Clientset, for clients of other kinds. It carries the transport, and
	// so the current credentials, but no credential itself.
	Config *rest.Config

	probe kubernetes.Interface
	link  *link
}

// Done is closed when the client has been replaced or its cluster removed. It is nil for a client made by hand.
func (c *Client) Done() <-chan struct{} {
	if c.link == nil {
		return nil
	}
	return c.link.done
}

// Probe is the typed client without rate limit, for health checks alone.
func (c *Client) Probe() kubernetes.Interface {
	if c.probe == nil {
		return c.Clientset
	}
	return c.probe
}
