package placement

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Requests returns what one pod of the spec asks for, in the units of cluster.ResourceCapacity. A limit without a
// request counts as the request, as in Kubernetes.
func Requests(s process.Spec) map[string]int64 {
	out := make(map[string]int64, len(s.Requests)+len(s.Limits))
	for _, m := range []map[string]string{s.Limits, s.Requests} {
		for name, text := range m {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				continue // refused at submission; a row cannot hold it
			}
			out[name] = q.Value()
			if name == "cpu" {
				out[name] = q.MilliValue()
			}
		}
	}
	return out
}

// Ledger counts the live attempts of each cluster and what those ask for that the cluster's capacity figures do not
// show yet, so that two placements do not both count on the last GPU. It lives in memory and is rebuilt by Load. Safe
// for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	attempts map[string]*entry            // by attempt
	clusters map[string]map[string]*entry // by cluster, then attempt
	reserved map[string]map[string]int64  // sums of what is not visible, by cluster and resource
	// generation counts reservations and capacity changes by cluster.
	generation map[string]int64
	capacity   map[string]*cluster.Capacity // last seen by load, to judge a reservation
}

type entry struct {
	cluster  string
	requests map[string]int64
	visible  bool // its pods are part of the cluster's capacity figures
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		attempts: map[string]*entry{}, clusters: map[string]map[string]*entry{}, reserved: map[string]map[string]int64{},
		generation: map[string]int64{}, capacity: map[string]*cluster.Capacity{},
	}
}

type load struct {
	active     int32
	capacity   *cluster.Capacity
	generation int64
}

// load returns the capacity less what is reserved.
func (l *Ledger) load(id string, c *cluster.Capacity) load {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity[id] = c
	return load{active: int32(len(l.clusters[id])), capacity: l.less(id, c), generation: l.generation[id]}
}

// less subtracts the reservations. On which node a pod will land is not known, so the largest free share of one node
// is only bounded by what is free in all.
func (l *Ledger) less(id string, c *cluster.Capacity) *cluster.Capacity {
	if c == nil {
		return nil
	}
	reserved := l.reserved[id]
	out := &cluster.Capacity{ObservedAt: c.ObservedAt, Nodes: c.Nodes, Resources: make(map[string]cluster.ResourceCapacity, len(c.Resources))}
	for name, r := range c.Resources {
		r.Free -= reserved[name]
		r.NodeFreeMax = min(r.NodeFreeMax, r.Free)
		out.Resources[name] = r
	}
	return out
}

// reserve books the attempt on the cluster. It says no, and books nothing, when the cluster changed since the snapshot
// (seen) and no longer has room where a snapshot would have shown some; a nil seen books in any case.
func (l *Ledger) reserve(attempt, id string, requests map[string]int64, seen map[string]int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen != nil && seen[id] != l.generation[id] && !fits(l.less(id, l.capacity[id]), requests) {
		return false
	}
	l.book(attempt, &entry{cluster: id, requests: requests})
	return true
}

func fits(c *cluster.Capacity, requests map[string]int64) bool {
	if c == nil {
		return true
	}
	for name, n := range requests {
		if r, known := c.Resources[name]; known && n > r.NodeFreeMax {
			return false
		}
	}
	return true
}

func (l *Ledger) book(attempt string, e *entry) {
	l.drop(attempt)
	l.attempts[attempt] = e
	if l.clusters[e.cluster] == nil {
		l.clusters[e.cluster] = map[string]*entry{}
	}
	l.clusters[e.cluster][attempt] = e
	l.sum(e, 1)
	l.generation[e.cluster]++
}

// sum adds what the entry reserves to its cluster's sums, or takes it off.
func (l *Ledger) sum(e *entry, times int64) {
	if e.visible {
		return
	}
	if l.reserved[e.cluster] == nil {
		l.reserved[e.cluster] = map[string]int64{}
	}
	for name, n := range e.requests {
		l.reserved[e.cluster][name] += times * n
	}
}

func (l *Ledger) drop(attempt string) {
	if e := l.attempts[attempt]; e != nil {
		l.sum(e, -1)
		delete(l.attempts, attempt)
		delete(l.clusters[e.cluster], attempt)
	}
}

// Release forgets an attempt: it ended, or was not stored. Unknown attempts are fine.
func (l *Ledger) Release(attempt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(attempt)
}

// Observed says which attempts the newest capacity figures of a cluster count; the others stay reserved.
func (l *Ledger) Observed(id string, counted map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for attempt, e := range l.clusters[id] {
		l.sum(e, -1)
		e.visible = counted[attempt]
		l.sum(e, 1)
	}
	l.generation[id]++
}

// LedgerStore is what a ledger is rebuilt and kept from.
type LedgerStore interface {
	LiveAttempts(ctx context.Context, clusterID string) ([]process.Attempt, error)
	Version(ctx context.Context, id string) (process.Version, error)
	Clusters(ctx context.Context) ([]cluster.Cluster, error)
}

// Load books every live attempt that is stored. Call it before the first decision.
func (l *Ledger) Load(ctx context.Context, s LedgerStore) error {
	clusters, err := s.Clusters(ctx)
	if err != nil {
		return fmt.Errorf("read the clusters: %w", err)
	}
	for _, c := range clusters {
		live, err := s.LiveAttempts(ctx, c.ID)
		if err != nil {
			return fmt.Errorf("read the live attempts of cluster %q: %w", c.Name, err)
		}
		for _, a := range live {
			v, err := s.Version(ctx, a.VersionID)
			if err != nil {
				return fmt.Errorf("read version %s: %w", a.VersionID, err)
			}
			l.mu.Lock()
			l.book(a.ID, &entry{cluster: c.ID, requests: Requests(v.Spec)})
			l.mu.Unlock()
		}
	}
	return nil
}

// Apply keeps the ledger by the list of events: an attempt that ended holds nothing any more.
func (l *Ledger) Apply(events []event.Event) {
	for _, e := range events {
		if process.State(e.State).Terminal() {
			l.Release(e.AttemptID)
		}
	}
}
