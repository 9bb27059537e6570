package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
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
	// Policy is what the operator allows in kubeconfigs.
	Policy kubeconfig.Options
	// AllowCIDRs exempts networks from the dial policy.
	AllowCIDRs []netip.Prefix
	// ProxyFromEnvironment makes clusters use the proxy variables of the environment.
	ProxyFromEnvironment bool
	// StoreConfig stores a provider config that a provider renewed, in place of the one of that revision, and returns the
	// new one's revision. An edit that came in between stands: then it returns an error. nil: the config is dropped.
	StoreConfig func(ctx context.Context, clusterID string, revision int64, config []byte) (int64, error)
	// Observer is told of every request; nil: nobody.
	Observer Observer
	// Backend gives the backend's own environment; default: in-cluster config, else the default kubeconfig loading rules.
	Backend func() (*rest.Config, error)
	// UserAgent of all requests; default "nagelfluh".
	UserAgent string
}

// Back-off after a failed attempt at connecting.
const (
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
	// rejectedPause is how long a provider is not asked again after its credentials were rejected by the cluster.
	rejectedPause = 30 * time.Second
	// recheckPatience is how long a caller waits for a look at the row, and for what it leads to, before it goes on with the
	// present client: a provider that hangs does not hold up a connection that works.
	recheckPatience = 2 * time.Second
)

// Registry holds one client per cluster. No lock is held while it calls a provider, the database or a cluster.
type Registry struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // builds

	mu       sync.Mutex
	closed   bool
	slots    map[string]*slot
	draining map[*link]struct{}
}

// slot is what is known of one cluster. Its fields are guarded by the registry's lock.
type slot struct {
	id      string
	limiter flowcontrol.RateLimiter
	// building is closed when the attempt under way ends; nil: none is.
	building chan struct{}
	// again says that the row was edited while the attempt under way may have read it already.
	again bool
	// forced makes the next attempt ask the provider, whatever the row says.
	forced  bool
	dropped bool

	client    *Client
	config    int64 // revision of type and config that client was made from
	kind      string
	checkedAt time.Time

	err      error // of the last attempt, while there is no client
	failures int
	retryAt  time.Time
	// rejectedAt is when new credentials were last asked for because of a 401.
	rejectedAt time.Time
}

// NewRegistry returns an empty registry. It connects to nothing until it is asked.
func NewRegistry(o Options) *Registry {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.QPS <= 0 {
		o.QPS = 500
	}
	if o.Burst <= 0 {
		o.Burst = 1000
	}
	if o.BuildTimeout <= 0 {
		o.BuildTimeout = 20 * time.Second
	}
	if o.Recheck <= 0 {
		o.Recheck = 2 * time.Second
	}
	if o.Backend == nil {
		o.Backend = backendConfig
	}
	if o.UserAgent == "" {
		o.UserAgent = "nagelfluh"
	}
	r := &Registry{o: o, slots: map[string]*slot{}, draining: map[*link]struct{}{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Get returns the client of a cluster, connecting when there is none. Concurrent calls share one attempt; a failure is
// remembered for a short and growing time. A client that is there is given even when the row leads nowhere since an edit;
// its Stale then says why. The error wraps a *ConnectError when the provider gave no usable connection and
// cluster.ErrNotFound when there is no such cluster.
func (r *Registry) Get(ctx context.Context, clusterID string) (*Client, error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, ErrClosed
		}
		s := r.slots[clusterID]
		if s == nil {
			s = &slot{id: clusterID, limiter: flowcontrol.NewTokenBucketRateLimiter(r.o.QPS, r.o.Burst)}
			r.slots[clusterID] = s
		}
		now := time.Now()
		if s.building == nil {
			switch {
			case s.client == nil && now.Before(s.retryAt):
				err := s.err
				r.mu.Unlock()
				return nil, err
			case s.client != nil && (now.Sub(s.checkedAt) < r.o.Recheck || now.Before(s.retryAt)):
				c := s.client
				r.mu.Unlock()
				return c, nil
			}
		}
		building, present := r.startLocked(s), s.client
		r.mu.Unlock()

		var late <-chan time.Time
		if present != nil {
			if present.Stale() != nil {
				return present, nil // it is mended in the background, if at all
			}
			t := time.NewTimer(recheckPatience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the connection to cluster %s: %w", clusterID, ctx.Err())
		case <-late:
			return present, nil
		case <-building:
		}
		r.mu.Lock()
		c, err, dropped := s.client, s.err, s.dropped
		r.mu.Unlock()
		if !dropped {
			if err != nil {
				return nil, err
			}
			return c, nil
		}
		if err != nil && errors.Is(err, cluster.ErrNotFound) {
			return nil, err
		}
	}
}

// startLocked joins the attempt under way or starts one.
func (r *Registry) startLocked(s *slot) <-chan struct{} {
	if s.building == nil {
		s.building = make(chan struct{})
		r.wg.Go(func() { r.build(s) })
	}
	return s.building
}

// Changed says that the cluster's row was edited: it is read again at once, in the background. Work goes on with the
// present client until then.
func (r *Registry) Changed(clusterID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.slots[clusterID]
	if s == nil || r.closed {
		return
	}
	s.checkedAt, s.retryAt = time.Time{}, time.Time{}
	s.again = s.building != nil
	r.startLocked(s)
}

// Drop closes the cluster's client, if there is one; the next Get connects anew.
func (r *Registry) Drop(clusterID string) {
	r.mu.Lock()
	s := r.slots[clusterID]
	if s != nil {
		r.removeLocked(s)
	}
	r.mu.Unlock()
}

// removeLocked forgets a slot and lets its client drain.
func (r *Registry) removeLocked(s *slot) {
	s.dropped = true
	delete(r.slots, s.id)
	if s.client != nil {
		r.drainLocked(s.client.link)
	}
}

func (r *Registry) drainLocked(l *link) {
	r.draining[l] = struct{}{}
	l.close(drainGrace)
	time.AfterFunc(drainGrace+time.Second, func() {
		r.mu.Lock()
		delete(r.draining, l)
		r.mu.Unlock()
	})
}

// Close closes every client and ends all that the registry started. It may be called twice.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	links := slices.Collect(maps.Keys(r.draining))
	for _, s := range r.slots {
		s.dropped = true
		if s.client != nil {
			links = append(links, s.client.link)
		}
	}
	clear(r.slots)
	clear(r.draining)
	r.mu.Unlock()
	r.cancel()
	for _, l := range links {
		l.close(0)
	}
	r.wg.Wait()
}

// backoff is how long a failed attempt is remembered, with jitter so that clusters that fail together do not retry together.
func backoff(failures int) time.Duration {
	d := min(firstBackoff<<min(failures, 10), lastBackoff)
	return d/2 + rand.N(d/2)
}
