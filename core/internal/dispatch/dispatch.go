// Package dispatch makes it so: it places attempts, makes their Jobs, follows them to their end, stops them when asked
// and removes what is no longer needed.
//
// It is level-triggered. The database holds what should be, the watch of each cluster tells what is, and every step
// compares the two; events only say that a look is worthwhile. A lost wake-up costs time until the next scan, never
// more, and a restart finds everything again in the database and at the clusters.
//
// Each cluster has workers, queues and back-off of its own, and no lock is held over a call, so a cluster that does not
// answer slows nothing but itself.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"k8s.io/utils/clock"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
)

// Change is a pure function that changes an attempt and says what happened. It may run more than once; it returns
// process.ErrNoChange when there is nothing to change.
type Change = func(a *process.Attempt) ([]event.Event, error)

// Store is what dispatch needs of the database. It refuses state changes that the table does not allow.
type Store interface {
	Version(ctx context.Context, id string) (process.Version, error)
	Project(ctx context.Context, id string) (project.Project, error)
	User(ctx context.Context, id string) (auth.User, error)
	Clusters(ctx context.Context) ([]cluster.Cluster, error)
	Cluster(ctx context.Context, id string) (cluster.Cluster, error)
	Attempt(ctx context.Context, id string) (process.Attempt, error)
	// PlacingDue returns attempts in state placing whose next try is due, in submission order.
	PlacingDue(ctx context.Context, now time.Time, limit int) ([]process.Attempt, error)
	// LiveAttempts returns the attempts pinned to the cluster that have not ended.
	LiveAttempts(ctx context.Context, clusterID string) ([]process.Attempt, error)
	LiveCounts(ctx context.Context) (map[string]int32, error)
	// LogsPending returns the attempts of the cluster that have ended, had a Job, and whose logs are not stored.
	LogsPending(ctx context.Context, clusterID string) ([]process.Attempt, error)
	// LeftLogs returns the removed clusters that LogsPending has attempts of.
	LeftLogs(ctx context.Context) (clusterIDs []string, err error)
	// UpdateAttempt changes an attempt and appends the events in one transaction; it returns the row as it is then.
	UpdateAttempt(ctx context.Context, id string, change func(a *process.Attempt) ([]event.Event, error)) (process.Attempt, error)
	// Decide is UpdateAttempt with the decision stored in the same transaction.
	Decide(ctx context.Context, d placement.Decision, change func(a *process.Attempt) ([]event.Event, error)) (process.Attempt, error)
	// News returns up to n events of the kinds after a sequence number, in their order.
	News(ctx context.Context, after int64, kinds []event.Kind, n int) ([]event.Event, error)
	LastSeq(ctx context.Context) (int64, error)
	// UpdateCluster changes one row; the revision is nil.
	UpdateCluster(ctx context.Context, id string, revision *int64, change func(*cluster.Cluster) error) (cluster.Cluster, error)
	// BeginEpoch notes a server that begins to work and advances the epoch; writers are all that are known.
	BeginEpoch(ctx context.Context, writer string) (before, epoch int64, writers []string, err error)
	// AdvanceEpoch makes the epoch greater than it is and than the given one.
	AdvanceEpoch(ctx context.Context, beyond int64) (epoch int64, err error)
	// Report appends events that belong to no attempt's change.
	Report(ctx context.Context, events ...event.Event) error
	Hub() *event.Hub
}

// Placer decides where an attempt goes.
type Placer interface {
	Decide(ctx context.Context, attemptID string, r placement.Request) (placement.Decision, error)
}

// Ledger holds what placed attempts reserve.
type Ledger interface {
	Load(ctx context.Context, s placement.LedgerStore) error
	Release(attemptID string)
}

// Clients gives the client of a cluster. The answer is not kept longer than one piece of work.
type Clients interface {
	Get(ctx context.Context, clusterID string) (*kube.Client, error)
}

// Outages keeps the one clock of each cluster's loss, which the health monitor goes by too.
type Outages interface {
	// Notice says that the cluster could not be reached at a time, and returns since when it has not been.
	Notice(clusterID string, at time.Time) time.Time
	// Answered says that the cluster gave an answer.
	Answered(clusterID string)
}

type noOutages struct{}

func (noOutages) Notice(_ string, at time.Time) time.Time { return at }
func (noOutages) Answered(string)                         {}

// Options configure a Dispatcher. Store, Placer, Ledger, Clients and Installation are required; the rest has defaults.
type Options struct {
	Store   Store
	Placer  Placer
	Ledger  Ledger
	Clients Clients
	// Logs is told of every pod that may have logs; nil: nobody is.
	Logs Logs
	// Outages is told of what goes wrong with reaching a cluster; nil: nobody is.
	Outages Outages
	// Storage knows where projects keep their data; nil: none has any.
	Storage Storage
	Logger  hclog.Logger
	Clock   clock.WithTicker

	// May says whether this server may still make Jobs, in that it leads for sure; it is asked before each create request.
	// Nil: always.
	May func() bool
	// Installation is the id that the labels of Jobs carry.
	Installation string
	// DefaultNamespace is where the Jobs of clusters live that name no namespace.
	DefaultNamespace string
	// PullSecrets name Secrets in the job namespace that hold registry credentials.
	PullSecrets []string

	// Placings bounds the questions to selectors under way at once; default 128: an answer takes little work and, on a busy
	// machine, long waits.
	Placings int
	// Creates bounds the create requests under way at once in one cluster; default 16.
	Creates int
	// Looks bounds the attempts of one cluster that anything else is done for at once; default 32.
	Looks int
	// Finishes bounds the attempts of one cluster whose logs are being stored at once; default 32.
	Finishes int

	// CreateTimeout is what one create request may take, enforced by the API server too; default 10 s.
	CreateTimeout time.Duration
	// CreateWindow is how long after its intent a create may still take effect; at least CreateTimeout; default 20 s.
	CreateWindow time.Duration
	// CreateMargin is waited beyond that window before absence means that nothing was created; default 5 s.
	CreateMargin time.Duration
	// CallTimeout bounds every other call to a cluster; default 10 s.
	CallTimeout time.Duration

	// Scan is the period of the look at the database that makes wake-ups a mere convenience; default 5 s.
	Scan time.Duration
	// Resync is the period in which every live attempt is looked at; default 30 s.
	Resync time.Duration
	// UnreachableAfter is how long a cluster must not answer before its attempts are flagged; default 10 s.
	UnreachableAfter time.Duration

	// PlacingErrorLimit is how long a failing selector may keep an attempt in placing before it fails; default 1 h.
	PlacingErrorLimit time.Duration
	// ReasksPerSecond bounds how often waiting attempts are decided anew when clusters change; default 50.
	ReasksPerSecond int
	// WaitRecheck is when a waiting attempt is decided anew although nothing is known to have changed; default 10 min.
	WaitRecheck time.Duration

	// Retention is how long the Job of an ended attempt is kept after its end once its logs are stored; default 15 min.
	// Negative: not at all.
	Retention time.Duration
	// StartLimits are how long an attempt may be blocked before it starts, by name of the limit; zero or absent: for ever.
	StartLimits map[string]time.Duration
	// KueueLimit is the same for Jobs with a queue at clusters without Kueue; default 15 s.
	KueueLimit time.Duration
	// LeasePeriod is how often the Lease of each job namespace is looked at and renewed; default 30 s.
	LeasePeriod time.Duration
	// FinalizerPatience is how long a deleted Job without running pods may be held by finalizers before the attempt ends
	// with a note that names them; default 2 min.
	FinalizerPatience time.Duration
}

func (o *Options) defaults() error {
	if o.Store == nil || o.Placer == nil || o.Ledger == nil || o.Clients == nil || o.Installation == "" {
		return errors.New("dispatch needs a store, a placer, a ledger, clients and the installation's id")
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Logs == nil {
		o.Logs = noLogs{}
	}
	if o.Storage == nil {
		o.Storage = noStorage{}
	}
	if o.May == nil {
		o.May = func() bool { return true }
	}
	if o.Outages == nil {
		o.Outages = noOutages{}
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	setInt := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	setInt(&o.Placings, 128)
	setInt(&o.Creates, 32)
	setInt(&o.Looks, 32)
	setInt(&o.Finishes, 32)
	setInt(&o.ReasksPerSecond, 50)
	set(&o.CreateTimeout, 10*time.Second)
	set(&o.CreateWindow, 2*o.CreateTimeout)
	set(&o.CreateMargin, 5*time.Second)
	set(&o.CallTimeout, 10*time.Second)
	set(&o.Scan, 5*time.Second)
	set(&o.Resync, 30*time.Second)
	set(&o.UnreachableAfter, 10*time.Second)
	set(&o.PlacingErrorLimit, time.Hour)
	set(&o.WaitRecheck, 10*time.Minute)
	set(&o.Retention, 15*time.Minute)
	set(&o.KueueLimit, 15*time.Second)
	set(&o.FinalizerPatience, 2*time.Minute)
	set(&o.LeasePeriod, 30*time.Second)
	if o.CreateWindow < o.CreateTimeout {
		return fmt.Errorf("the create window (%s) is shorter than the create timeout (%s)", o.CreateWindow, o.CreateTimeout)
	}
	return nil
}

// Dispatcher drives every attempt to its end. One runs per installation.
type Dispatcher struct {
	o     Options
	log   hclog.Logger
	place *placing
	fleet *fleet
	// lineage is set by Run before anything is written to a cluster.
	lineage *lineage

	bad error // what is wrong with the options; Run says it

	mu      sync.Mutex
	started bool
	ended   bool // Stop came first
	stop    context.CancelFunc
	stopped chan struct{}
}

// New returns a dispatcher that does nothing until it runs; Run says what is wrong with the options.
func New(o Options) *Dispatcher {
	d := &Dispatcher{stopped: make(chan struct{})}
	d.bad = o.defaults()
	d.o = o
	if d.bad == nil {
		d.log = o.Logger.Named("dispatch")
	}
	d.fleet = newFleet(d)
	d.place = newPlacing(d)
	return d
}

// ErrStarted is returned by a Run after the first.
var ErrStarted = errors.New("dispatch runs already, or did")

// Run works until ctx ends or Stop is called, and returns when everything it started has ended. It may be called once.
// The error is about the start alone; whatever goes wrong later is retried.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.mu.Lock()
	switch {
	case d.started:
		d.mu.Unlock()
		return ErrStarted
	case d.ended:
		d.mu.Unlock()
		return nil
	}
	d.started = true
	ctx, d.stop = context.WithCancel(ctx)
	d.mu.Unlock()
	defer close(d.stopped)
	defer d.stop()
	if d.bad != nil {
		return d.bad
	}

	if err := d.o.Ledger.Load(ctx, d.o.Store); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return fmt.Errorf("load reservations: %w", err)
	}
	// The number is read before anything else is, so that what happens meanwhile is seen as news.
	seq, err := d.o.Store.LastSeq(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the last event: %w", err)
	}

	if err := d.beginLineage(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}

	var wg sync.WaitGroup
	wg.Go(func() { d.keepAdvancing(ctx) })
	wg.Go(func() { d.fleet.run(ctx) })
	wg.Go(func() { d.closeLeftLogs(ctx) })
	wg.Go(func() { d.place.run(ctx) })
	wg.Go(func() { d.feed(ctx, seq) })
	wg.Wait()
	return nil
}

// Stop ends Run and waits for it; a Run that comes later returns at once. It may be called any number of times.
func (d *Dispatcher) Stop() {
	d.mu.Lock()
	started, stop := d.started, d.stop
	d.ended = true
	d.mu.Unlock()
	if started {
		stop()
		<-d.stopped
	}
}

// now is the present as the database keeps it.
func (d *Dispatcher) now() time.Time { return d.o.Clock.Now().UTC().Truncate(time.Microsecond) }
