package kube

import (
	"context"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
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

// newClient makes the clients on top of a link.
func newClient(l *link, namespace string, limiter flowcontrol.RateLimiter, userAgent string) (*Client, error) {
	cfg := &rest.Config{
		Host:      l.endpoint.server,
		Transport: l,
		UserAgent: userAgent,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		RateLimiter: limiter,
	}
	set, err := kubernetes.NewForConfigAndClient(cfg, &http.Client{Transport: l})
	if err != nil {
		return nil, err
	}
	free := rest.CopyConfig(cfg)
	free.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	probe, err := kubernetes.NewForConfigAndClient(free, &http.Client{Transport: l})
	if err != nil {
		return nil, err
	}
	return &Client{ClusterID: l.clusterID, Namespace: namespace, Clientset: set, Config: rest.CopyConfig(cfg), probe: probe, link: l}, nil
}

// Done is closed when the client has been replaced or its cluster removed. It is nil for a client made by hand.
func (c *Client) Done() <-chan struct{} {
	if c.link == nil {
		return nil
	}
	return c.link.done
}

// Stale says why the cluster's row, as it was edited, gives no connection, and so this one is still in use; nil: this is
// the connection of the row.
func (c *Client) Stale() error {
	if c.link == nil {
		return nil
	}
	if err := c.link.stale.Load(); err != nil {
		return *err
	}
	return nil
}

// Expires is when the present credentials end, zero: not known to end, and whether the provider is asked for others
// before.
func (c *Client) Expires() (at time.Time, renewed bool) {
	if c.link == nil {
		return time.Time{}, false
	}
	creds := c.link.current.Load().creds
	return creds.ends, !creds.renewAt.IsZero()
}

// Probe is the typed client without rate limit, for health checks alone.
func (c *Client) Probe() kubernetes.Interface {
	if c.probe == nil {
		return c.Clientset
	}
	return c.probe
}

// Server is the address of the API server, for messages; empty for a client made by hand.
func (c *Client) Server() string {
	if c.link == nil {
		return ""
	}
	return c.link.endpoint.server
}

// Logs opens the log of a container of a pod in the client's namespace; o may be nil. With Follow it lasts until the
// container ends, ctx ends or the connection breaks; an end of the stream without error is the end of the log. The
// caller closes it.
func (c *Client) Logs(ctx context.Context, pod, container string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	opts := corev1.PodLogOptions{}
	if o != nil {
		opts = *o
	}
	opts.Container = container
	return c.Clientset.CoreV1().Pods(c.Namespace).GetLogs(pod, &opts).Stream(ctx)
}
