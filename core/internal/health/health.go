// Package health keeps watch over clusters: whether they answer, which Kubernetes they run, which cluster it is, and
// what their nodes hold. Each cluster has a goroutine of its own, so that a hung one holds up nothing but itself.
package health

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/utils/clock"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// Store is where clusters are read and what was seen is kept.
type Store interface {
	Clusters(ctx context.Context) ([]cluster.Cluster, error)
	// LiveCounts are the attempts on each cluster that have not ended.
	LiveCounts(ctx context.Context) (map[string]int32, error)
	Observe(ctx context.Context, id string, o cluster.Observed) error
}

// Clients gives the clients that all other work uses too: a check must not pass while the work is dead.
type Clients interface {
	Get(ctx context.Context, clusterID string) (*kube.Client, error)
}

// Options configure a Monitor. Store and Clients are required.
type Options struct {
	Store   Store
	Clients Clients
	Logger  hclog.Logger
	Clock   clock.WithTicker // default: the real one
	// Interval is the time between two probes of a cluster; default 10 s, with a fifth of it as jitter.
	Interval time.Duration
	// CapacityEvery is the time between two readings of nodes and pods; default 15 s.
	CapacityEvery time.Duration
	// Timeout bounds one probe, and the reading of capacity as well; default 5 s. A frozen connection is noticed by it.
	Timeout time.Duration
	// SuspectAfter is how long a cluster may give no answer before nothing is placed there; default 5 s.
	SuspectAfter time.Duration
	// LostAfter is how long a cluster may give no answer before it counts as lost; default 15 min.
	LostAfter time.Duration
	// Scan is the time between two looks at which clusters there are; default 2 s.
	Scan time.Duration
	// Counted is told which attempts the stored capacity of a cluster counts: those with a pod on a node. Optional.
	Counted func(clusterID string, attempts map[string]bool)
	// FreedPause is the shortest time between two readings of capacity because jobs ended; default 3 s.
	FreedPause time.Duration
	// Served says whether a provider plugin serves a cluster type now. Optional.
	Served func(clusterType string) bool
	// EnsureNamespace makes missing job namespaces.
	EnsureNamespace bool
	// CapacityTimeout bounds the reading of nodes and pods of a large cluster; default 20 s.
	CapacityTimeout time.Duration
}

// Monitor watches every active cluster, and a retired one for as long as attempts live there. Its methods are safe for concurrent use.
type Monitor struct {
	o Options

	mu     sync.Mutex
	checks map[string]*check
	wake   chan struct{}
}

// New returns a monitor that does nothing until Run.
func New(o Options) *Monitor {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&o.Interval, 10*time.Second)
	def(&o.CapacityEvery, 15*time.Second)
	def(&o.Timeout, 5*time.Second)
	def(&o.CapacityTimeout, 20*time.Second)
	def(&o.SuspectAfter, 5*time.Second)
	def(&o.LostAfter, 15*time.Minute)
	def(&o.FreedPause, 3*time.Second)
	def(&o.Scan, 2*time.Second)
	return &Monitor{o: o, checks: map[string]*check{}, wake: make(chan struct{}, 1)}
}

// Run watches until ctx ends and returns when everything that it started has ended. Its error is always nil.
func (m *Monitor) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ticker := m.o.Clock.NewTicker(m.o.Scan)
	defer ticker.Stop()
	for {
		rows, err := m.watched(ctx)
		if err != nil && ctx.Err() == nil {
			m.o.Logger.Warn("cannot read the clusters; trying again", "error", err)
		}
		if err == nil {
			m.reconcile(ctx, &running, rows)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-m.wake:
		}
	}
}

// Refresh asks for a cluster's state and capacity at once: an admin changed it. Calls within a second are one.
func (m *Monitor) Refresh(clusterID string) {
	if c := m.check(clusterID); c != nil {
		c.kick(c.wake)
		return
	}
	select { // a cluster that is not watched yet
	case m.wake <- struct{}{}:
	default:
	}
}

// Freed asks for a cluster's capacity, soon: a job ended there. The first call is answered at once, those that follow it
// closely are one.
func (m *Monitor) Freed(clusterID string) {
	if c := m.check(clusterID); c != nil {
		c.kick(c.freed)
	}
}

// Notice says that a cluster could not be reached at a time, whoever noticed: the clock of its outage runs from then on,
// unless it does already, and the cluster is looked at at once. It returns since when the clock runs.
func (m *Monitor) Notice(clusterID string, at time.Time) time.Time {
	c := m.check(clusterID)
	if c == nil {
		return at
	}
	since, first := c.outage.begin(at)
	if first {
		c.noticed()
	}
	return since
}

// Answered says that a cluster gave an answer, whoever got it: the clock of its outage stops.
func (m *Monitor) Answered(clusterID string) {
	if c := m.check(clusterID); c != nil && c.outage.end() {
		c.kick(c.wake)
	}
}

func (m *Monitor) check(clusterID string) *check {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.checks[clusterID]
}

// watched are the clusters that are to be looked at.
func (m *Monitor) watched(ctx context.Context) ([]cluster.Cluster, error) {
	rows, err := m.o.Store.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	retired := slices.ContainsFunc(rows, func(c cluster.Cluster) bool { return !c.Active })
	var live map[string]int32
	if retired {
		if live, err = m.o.Store.LiveCounts(ctx); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(rows, func(c cluster.Cluster) bool {
		return live[c.ID] == 0 && (!c.Active || c.Provisioning == cluster.Pending || c.Provisioning == cluster.Broken)
	}), nil
}

// reconcile makes the running checks match the clusters.
func (m *Monitor) reconcile(ctx context.Context, running *sync.WaitGroup, rows []cluster.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := map[string]bool{}
	for _, row := range rows {
		wanted[row.ID] = true
		if c := m.checks[row.ID]; c != nil {
			c.edited(row)
			continue
		}
		c := newCheck(m, row)
		inner, cancel := context.WithCancel(ctx)
		c.stop = cancel
		m.checks[row.ID] = c
		running.Go(func() { c.run(inner) })
	}
	for id, c := range m.checks {
		if !wanted[id] {
			c.stop()
			delete(m.checks, id)
		}
	}
}

// jittered spreads what would otherwise happen to all clusters at one moment.
func jittered(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }
