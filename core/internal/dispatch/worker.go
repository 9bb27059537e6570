package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 30 * time.Second
	// inHand is how many attempts are in hand for each create request: most of them wait for the database.
	inHand = 16
)

type queue = workqueue.TypedRateLimitingInterface[string]

// worker looks after the attempts of one cluster. Creates have a queue of their own, so that a thousand of them delay
// no cancel; an attempt is never in two hands at once.
type worker struct {
	d          *Dispatcher
	id         string
	log        hclog.Logger
	creates    queue
	looks      queue
	logs       queue // attempts that have ended and whose logs are to be stored
	reach      *reach
	watch      *kube.Watch
	ctx        context.Context         // ends with the worker
	eventReads flowcontrol.RateLimiter // of events and queues: a burst has many Jobs without pods for a while
	// posts are the slots of create requests. More attempts than that are in hand in their queue, so that storing what
	// came of one request keeps no other from being sent.
	posts  chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup
	look   chan struct{} // asks for a look at the Leases

	mu       sync.Mutex
	fences   map[string]*fence // by namespace
	cluster  cluster.Cluster   // as last read
	attempts map[string]*attempt
	orphans  map[string]bool   // UIDs of Jobs that have been reported
	others   map[string]bool   // attempts of Jobs here that are not this entry's
	secrets  secrets           // of storage, in the namespaces of the cluster
	behind   map[string]string // of attempts that the last audit saw differ: the version that the watch showed
}

// attempt is what a worker knows of one attempt. Fields below the line belong to whoever is busy with it.
type attempt struct {
	row   process.Attempt // the newest revision seen
	busy  bool
	again bool // something came up while busy
	// suspect: what the watch shows of the attempt is not to be trusted.
	suspect bool
	// notBefore is the moment until which the API server asked for patience.
	notBefore time.Time

	// ————
	version    *process.Version // read when needed, dropped when the Job exists
	limits     *limits          // nil: not known yet
	sent       sending
	failures   int       // of create requests in a row
	unclear    string    // what came in place of an answer to the last one of which it is not known what it did
	namespaced bool      // the namespace was missing and has been asked for
	asked      time.Time // when the deletion was last asked for, in this process
	reasonAt   time.Time // when a finding was last stored
	stepAt     time.Time // when the Job was first seen to have ended before its pod; zero: never
	events     []corev1.Event
	eventsAt   time.Time // when they were read
	queue      *evidence.Queue
	queueAt    time.Time // when that was read
	finished   bool      // its logs are being stored
}

// sending says what is known of create requests of an attempt that has no Job yet.
type sending int

const (
	sentMaybe    sending = iota // one may have made a Job or still may: its answer is missing, or what it said not stored
	sentNever                   // none has left this process since the intent was stored
	sentAnswered                // one was sent and answered: it made no Job and never will
)

func startWorker(ctx context.Context, d *Dispatcher, c cluster.Cluster) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{
		d: d, id: c.ID, cluster: c, cancel: cancel,
		log:        d.log.With("cluster", c.Name),
		creates:    newQueue(d),
		looks:      newQueue(d),
		logs:       newQueue(d),
		attempts:   map[string]*attempt{},
		orphans:    map[string]bool{},
		others:     map[string]bool{},
		eventReads: flowcontrol.NewTokenBucketRateLimiter(5, 5),
		posts:      make(chan struct{}, d.o.Creates),
		ctx:        ctx,
		fences:     map[string]*fence{},
		look:       make(chan struct{}, 1),
	}
	w.reach = newReach(w)
	w.watch = kube.NewWatch(kube.WatchOptions{
		ClusterID: c.ID, Selector: job.Selector(d.o.Installation), Logger: d.log,
		Client:  func(ctx context.Context) (*kube.Client, error) { return d.o.Clients.Get(ctx, c.ID) },
		Changed: w.changedOnCluster,
		Synced:  w.wakeAll,
		Reachable: func(ok bool, err error) {
			if !ok {
				w.reach.doubt(err)
			}
		},
	})
	w.wg.Go(func() { w.watch.Run(ctx) })
	w.wg.Go(func() { w.serve(ctx, w.creates, d.o.Creates*inHand, w.step) })
	w.wg.Go(func() { w.serve(ctx, w.looks, d.o.Looks, w.step) })
	w.wg.Go(func() { w.serve(ctx, w.logs, d.o.Finishes, w.storeLogs) })
	w.wg.Go(func() { w.resync(ctx) })
	w.wg.Go(func() { w.leases(ctx) })
	w.wg.Go(func() { w.sweepSecrets(ctx) })
	return w
}

func newQueue(d *Dispatcher) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoffFirst, backoffMost),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: d.o.Clock},
	)
}

func namespaceOf(c cluster.Cluster, fallback string) string {
	if c.Namespace != "" {
		return c.Namespace
	}
	return fallback
}

// stop ends everything of the worker and waits for it.
func (w *worker) stop() {
	w.cancel()
	w.creates.ShutDown()
	w.looks.ShutDown()
	w.logs.ShutDown()
	w.wg.Wait()
	w.reach.wait()
}

// changed takes over the cluster's row.
func (w *worker) changed(c cluster.Cluster) {
	w.mu.Lock()
	confirmed := c.Lease != nil && c.Lease.ConfirmedAt != nil && (w.cluster.Lease == nil || w.cluster.Lease.ConfirmedAt == nil)
	w.cluster = c
	w.mu.Unlock()
	if confirmed {
		select {
		case w.look <- struct{}{}:
		default:
		}
	}
}

// watches says whether the watch covers the namespace; w.mu is held. It follows the cluster's settings, and an attempt
// stays in the namespace that it was placed in.
func (w *worker) watches(namespace string) bool {
	return namespace == namespaceOf(w.cluster, w.d.o.DefaultNamespace)
}

func (w *worker) watched(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches(namespace)
}

func (w *worker) row() cluster.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster
}

// idle says whether the worker has nothing to look after.
func (w *worker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attempts) == 0
}

// serve does n things at a time.
func (w *worker) serve(ctx context.Context, q queue, n int, do func(context.Context, string) (time.Duration, error)) {
	slots := make(chan struct{}, n)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		slots <- struct{}{}
		id, shutdown := q.Get()
		if shutdown {
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer q.Done(id)
			after, err := do(ctx, id)
			w.settle(ctx, q, id, after, err)
		})
	}
}

// errParked ends a step that needs the cluster while it does not answer; its return wakes every attempt.
var errParked = errors.New("the cluster does not answer")

// later is an error that says when to try again.
type later struct {
	after time.Duration
	cause error
}

func (l *later) Error() string { return l.cause.Error() }
func (l *later) Unwrap() error { return l.cause }

// settle decides when an attempt is looked at again.
func (w *worker) settle(ctx context.Context, q queue, id string, after time.Duration, err error) {
	pause := (*later)(nil)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errParked):
		q.Forget(id)
	case errors.As(err, &pause):
		w.log.Debug("trying again later", "attempt", id, "after", pause.after, "error", err)
		q.AddAfter(id, pause.after)
	case err != nil:
		w.log.Debug("trying again", "attempt", id, "error", err)
		q.AddRateLimited(id)
	default:
		q.Forget(id)
		if after > 0 {
			q.AddAfter(id, after)
		}
	}
}

// step does the next thing for one attempt.
func (w *worker) step(ctx context.Context, id string) (time.Duration, error) {
	a, row, known := w.begin(id)
	switch {
	case !known:
		return 0, w.meet(ctx, id)
	case a == nil:
		return 0, nil // in other hands, which look again
	}
	defer w.finish(a)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return w.act(ctx, a, row)
}

// act chooses by the row alone what is to be done. It returns when to look again; zero: when something happens.
func (w *worker) act(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if row.State.Terminal() {
		return w.retire(ctx, a, row)
	}
	row, err := w.flag(ctx, a, row)
	if err != nil {
		return 0, err
	}
	switch {
	case row.State == process.Cancelling:
		return w.cancelled(ctx, a, row)
	case row.State == process.Creating && row.JobUID == "":
		return w.create(ctx, a, row)
	case row.StopCode != "":
		return w.overrun(ctx, a, row)
	default:
		return w.observe(ctx, a, row)
	}
}

// resync looks at every live attempt as the database has it, at the start and in each period.
func (w *worker) resync(ctx context.Context) {
	ticker := w.d.o.Clock.NewTicker(w.d.o.Resync)
	defer ticker.Stop()
	for {
		live, err := w.d.o.Store.LiveAttempts(ctx, w.id)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("cannot read the live attempts; trying again", "error", err)
		}
		for _, row := range live {
			w.learn(row)
		}
		pending, err := w.d.o.Store.LogsPending(ctx, w.id)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("cannot read whose logs are to be stored; trying again", "error", err)
		}
		for _, row := range pending {
			w.admit(row)
		}
		if len(live) > 0 {
			if err := w.audit(ctx); err != nil {
				w.log.Debug("cannot compare the watch with a list", "error", err)
			}
		}
		w.wakeAll()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
