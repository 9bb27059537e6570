package dispatch

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// fleet holds the workers of all clusters. A cluster has workers while it is active or anything of ours lives there: a
// retired or cordoned cluster still has its attempts looked after.
type fleet struct {
	d    *Dispatcher
	kick chan struct{}

	mu      sync.Mutex
	workers map[string]*worker
	// fresh are attempts whose decision is being stored by this process: no create request of theirs has left it.
	fresh map[string]bool
	// barred are clusters that are being removed by force: they get no workers.
	barred map[string]bool
	// looks is what each cluster's health and capacity looked like, to tell when a waiting attempt may fit.
	looks  map[string]string
	ending sync.WaitGroup // workers that have been told to stop
}

func newFleet(d *Dispatcher) *fleet {
	return &fleet{d: d, kick: make(chan struct{}, 1), workers: map[string]*worker{}, fresh: map[string]bool{}, barred: map[string]bool{}, looks: map[string]string{}}
}

// refresh says that clusters were added, changed or removed.
func (f *fleet) refresh() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

func (f *fleet) run(ctx context.Context) {
	ticker := f.d.o.Clock.NewTicker(f.d.o.Scan)
	defer ticker.Stop()
	for {
		if err := f.reconcile(ctx); err != nil && ctx.Err() == nil {
			f.d.log.Warn("cannot read the clusters; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			f.stopAll()
			return
		case <-f.kick:
		case <-ticker.C():
		}
	}
}

// reconcile starts and stops workers so that they match the clusters.
func (f *fleet) reconcile(ctx context.Context) error {
	clusters, err := f.d.o.Store.Clusters(ctx)
	if err != nil {
		return err
	}
	counts, err := f.d.o.Store.LiveCounts(ctx)
	if err != nil {
		return err
	}
	secrets, err := f.d.o.Storage.SecretClusters(ctx)
	if err != nil {
		return err
	}
	f.compare(clusters)
	known := make(map[string]bool, len(clusters))
	for _, c := range clusters {
		known[c.ID] = true
		w := f.worker(c.ID)
		wanted := c.Active && c.Provisioning != cluster.Pending && c.Provisioning != cluster.Broken || counts[c.ID] > 0 || secrets[c.ID]
		switch {
		case w == nil && wanted:
			f.start(ctx, c)
		case w != nil && !wanted && w.idle():
			f.stop(c.ID)
		case w != nil:
			w.changed(c)
		}
	}
	f.mu.Lock()
	var removed []string
	for id := range f.workers {
		if !known[id] {
			removed = append(removed, id)
		}
	}
	maps.DeleteFunc(f.barred, func(id string, _ bool) bool { return !known[id] })
	f.mu.Unlock()
	for _, id := range removed {
		f.stop(id)
		f.ending.Go(func() { f.d.closeLogs(context.Background(), id) })
	}
	return nil
}

// compare tells those that wait when what a cluster can take has changed: capacity comes and goes without an event.
func (f *fleet) compare(clusters []cluster.Cluster) {
	looks := make(map[string]string, len(clusters))
	for _, c := range clusters {
		var resources map[string]cluster.ResourceCapacity
		if c.Observed.Capacity != nil {
			resources = c.Observed.Capacity.Resources
		}
		looks[c.ID] = fmt.Sprint(c.Observed.Health, resources)
	}
	f.mu.Lock()
	changed := !maps.Equal(f.looks, looks)
	f.looks = looks
	f.mu.Unlock()
	if changed {
		f.d.place.changed()
	}
}

func (f *fleet) worker(id string) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[id]
}

func (f *fleet) start(ctx context.Context, c cluster.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.workers[c.ID] == nil && !f.barred[c.ID] && ctx.Err() == nil {
		f.workers[c.ID] = startWorker(ctx, f.d, c)
	}
}

// stop ends a cluster's workers without waiting for the calls that they are in.
func (f *fleet) stop(id string) {
	f.mu.Lock()
	w := f.workers[id]
	delete(f.workers, id)
	f.mu.Unlock()
	if w != nil {
		f.ending.Go(w.stop)
	}
}

// bar keeps a cluster that is being removed from having workers, and returns one that only makes calls.
func (f *fleet) bar(c cluster.Cluster) *worker {
	f.mu.Lock()
	f.barred[c.ID] = true
	w := f.workers[c.ID]
	delete(f.workers, c.ID)
	f.mu.Unlock()
	if w == nil {
		w = &worker{d: f.d, id: c.ID, cluster: c, log: f.d.log.With("cluster", c.Name), fences: map[string]*fence{}, look: make(chan struct{}, 1)}
		var cancel context.CancelFunc
		w.ctx, cancel = context.WithCancel(context.Background())
		cancel() // it probes nothing by itself
		w.reach = newReach(w)
		return w
	}
	stopped := make(chan struct{})
	f.ending.Go(func() {
		w.stop()
		close(stopped)
	})
	select { // what it is doing was cancelled; should something hang, the states of attempts are safe all the same
	case <-stopped:
	case <-f.d.o.Clock.After(abandonFor):
	}
	return w
}

func (f *fleet) stopAll() {
	f.mu.Lock()
	ids := make([]string, 0, len(f.workers))
	for id := range f.workers {
		ids = append(ids, id)
	}
	f.mu.Unlock()
	for _, id := range ids {
		f.stop(id)
	}
	f.ending.Wait()
}

// expect says that a decision is about to be stored that places the attempt.
func (f *fleet) expect(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh[id] = true
}

// expected says, once, whether the attempt was placed by this process.
func (f *fleet) expected(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.fresh[id]
	delete(f.fresh, id)
	return was
}

// take hands over an attempt that has just been placed by this process: no create of it is under way.
func (f *fleet) take(row process.Attempt, v *process.Version) {
	if w := f.worker(row.ClusterID); w != nil {
		w.take(row, v)
		return
	}
	f.refresh() // the cluster is new; its workers read their attempts when they start
}

// reload reads an attempt that somebody else changed and has its cluster look at it.
func (f *fleet) reload(ctx context.Context, id string) {
	row, err := f.d.o.Store.Attempt(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			// The next resync finds it.
			f.d.log.Debug("cannot read an attempt that changed", "attempt", id, "error", err)
		}
		return
	}
	if w := f.worker(row.ClusterID); w != nil && row.ClusterID != "" {
		w.learn(row)
	}
}
