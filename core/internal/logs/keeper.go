package logs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// KeeperOptions configure a Keeper. Source, Archive and SpoolDir are required; the rest has defaults.
type KeeperOptions struct {
	Source  Source
	Archive *Archive
	// SpoolDir is a local directory for the logs of attempts that live. It must survive restarts; one Keeper uses it.
	SpoolDir string
	// Shared: other servers may lead before and after, with spools of their own. What they must know is kept in the archive.
	Shared bool
	Logger hclog.Logger

	// Quota is how many bytes an attempt's containers may print together before the rest is dropped, with a gap that says
	// so; default 1 GiB. Negative: no limit.
	Quota int64
	// Follows bounds the open follows per cluster; default 5000. Reads bounds the reads of ended containers per cluster;
	// default 4: they come in bursts, and creating Jobs comes first. Stores bounds the attempts at the archive at once; default 8.
	Follows int
	Reads   int
	Stores  int

	// FollowAfter is how long after a container was seen to run its log is opened: one that ends before is read once, not
	// followed and then read to see that nothing is missing; default 200 ms. Negative: at once.
	FollowAfter time.Duration
	// Stall is how long a follow may be silent before it is opened anew: silence and a dead connection look the same;
	// default 2 min. ReadStall is the same for a container that has ended; default 15 s.
	Stall     time.Duration
	ReadStall time.Duration
	// RetryMin and RetryMax bound the back-off between two tries; defaults 250 ms and 15 s.
	RetryMin time.Duration
	RetryMax time.Duration

	// FinishGrace is how long Finish waits for a container that still seems to run to be seen ended; default 10 s.
	FinishGrace time.Duration
	// FinishTimeout is how long Finish tries to read what is left before it stores the log with a gap; default 10 min. A
	// cluster that answers, but refuses, is given a tenth of it.
	FinishTimeout time.Duration
}

func (o *KeeperOptions) defaults() error {
	if o.Source == nil || o.Archive == nil || o.SpoolDir == "" {
		return errors.New("log keeper needs a source, an archive and a spool directory")
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Quota == 0 {
		o.Quota = 1 << 30
	}
	number := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	number(&o.Follows, 5000)
	number(&o.Reads, 4)
	number(&o.Stores, 8)
	duration := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.FollowAfter == 0 {
		o.FollowAfter = 200 * time.Millisecond
	}
	duration(&o.Stall, 2*time.Minute)
	duration(&o.ReadStall, 15*time.Second)
	duration(&o.RetryMin, 250*time.Millisecond)
	duration(&o.RetryMax, 15*time.Second)
	duration(&o.FinishGrace, 10*time.Second)
	duration(&o.FinishTimeout, 10*time.Minute)
	return nil
}

// Keeper follows the containers of live attempts, spools what they print, and stores it in the archive at the end. One
// Keeper runs per installation, at the leader. Safe for concurrent use.
type Keeper struct {
	o      KeeperOptions
	log    hclog.Logger
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	stores chan struct{}
	born   time.Time
	came   signal // an attempt came under care

	mu       sync.Mutex
	closed   bool
	attempts map[string]*attempt
	lanes    map[string]*lane     // by cluster
	stored   map[string]time.Time // attempts stored lately: a caller with an old row must not take them up again
}

// storedMemory is how long a caller's row may lag behind.
const storedMemory = time.Hour

// lane bounds what one cluster may occupy, so that a frozen one holds up only itself.
type lane struct {
	follows chan struct{}
	reads   chan struct{}
}

// NewKeeper returns a Keeper that does nothing until Ensure. What an earlier one left in the spool is taken up when
// Ensure or Finish names the attempt.
func NewKeeper(o KeeperOptions) (*Keeper, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	k := &Keeper{
		o: o, log: o.Logger,
		stores: make(chan struct{}, o.Stores), attempts: map[string]*attempt{}, lanes: map[string]*lane{},
		stored: map[string]time.Time{}, born: time.Now(),
	}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k, nil
}

// Close ends all follows and waits for them. The spools stay, for the next Keeper. Closing twice is safe.
func (k *Keeper) Close() error {
	k.stop()
	k.mu.Lock()
	k.closed = true
	attempts := k.attempts
	k.attempts = map[string]*attempt{}
	k.mu.Unlock()
	for _, t := range attempts {
		t.release(true)
	}
	return nil
}

// Ensure makes sure that every container of these pods that has started is being followed, and takes note of those that
// have ended. Call it whenever the attempt's pods may have changed: it returns at once and costs little when nothing did.
// Pods that are not named are not taken to be gone; those of an attempt that is being cancelled are about to go. The pods are only read; of them are used: name, UID, creation time, the
// names and restart policies of (init) containers, and their statuses.
func (k *Keeper) Ensure(a process.Attempt, pods []*corev1.Pod) {
	if len(pods) == 0 || a.LogsStored {
		return
	}
	k.mu.Lock()
	_, stored := k.stored[a.ID]
	k.mu.Unlock()
	if stored {
		return
	}
	t, err := k.attempt(a)
	if err == nil {
		t.ensure(pods, a.State == process.Cancelling)
	} else if !errors.Is(err, ErrClosed) {
		k.log.Error("the logs of an attempt cannot be kept now", "attempt", a.ID, "error", err)
	}
}

// Finish stores the logs of an attempt that has ended; after it has returned nil the archive holds them, and the caller may
// mark them as stored and remove the Job. Pods are those of the attempt as the API server had them after its end (a list,
// not a cache that may lag); nil when they are gone.
//
// It waits until every container's log is read to its end, at most FinishTimeout; what is missing then becomes a gap. It may
// thus block for long and wants a goroutine of its own. It may be called again after any error and after a restart, and
// returns at once when the archive holds the logs already. Errors: ctx ended, ErrClosed, the spool or the archive failed.
func (k *Keeper) Finish(ctx context.Context, a process.Attempt, pods []*corev1.Pod) error {
	return k.end(ctx, a, pods, false)
}

// Abandon is Finish for an attempt whose cluster was removed: nothing more is read, what has been is stored, and a gap says
// why a log has no end. The streams of its readers end.
func (k *Keeper) Abandon(ctx context.Context, a process.Attempt) error {
	return k.end(ctx, a, nil, true)
}

func (k *Keeper) end(ctx context.Context, a process.Attempt, pods []*corev1.Pod, cut bool) error {
	_, err := k.o.Archive.Manifest(ctx, a.ID)
	if errors.Is(err, ErrMissing) {
		err = k.finish(ctx, a, pods, cut)
	}
	if err != nil {
		return err
	}
	// Readers find the archive before the spool goes.
	k.forget(a.ID)
	if k.o.Shared {
		if err := k.o.Archive.dropBegun(ctx, a.ID); err != nil {
			k.log.Warn("a file of the archive that nobody needs any more stays", "error", err)
		}
	}
	return removeSpool(k.o.SpoolDir, a.ID)
}

func (k *Keeper) finish(ctx context.Context, a process.Attempt, pods []*corev1.Pod, cut bool) error {
	t, err := k.attempt(a)
	if err != nil {
		return err
	}
	t.ensure(pods, false)
	if cut {
		t.cutOff()
	}
	if err := t.drain(ctx); err != nil {
		return fmt.Errorf("read the logs of attempt %s to their end: %w", a.ID, err)
	}
	free, err := k.turn(ctx)
	if err != nil {
		return err
	}
	defer free()
	return t.store(ctx)
}

// turn waits for one of the places at the archive.
func (k *Keeper) turn(ctx context.Context) (free func(), err error) {
	select {
	case k.stores <- struct{}{}:
		return func() { <-k.stores }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-k.ctx.Done():
		return nil, ErrClosed
	}
}

// attempt returns the one under care, taking it up when it is not.
func (k *Keeper) attempt(a process.Attempt) (*attempt, error) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, ErrClosed
	}
	t := k.attempts[a.ID]
	if t == nil {
		t = newAttempt(k, a)
		k.attempts[a.ID] = t
	}
	k.mu.Unlock()
	return t, t.load()
}

// live returns the attempt when it is under care.
func (k *Keeper) live(id string) *attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.attempts[id]
}

// forget lets go of an attempt whose logs are stored.
func (k *Keeper) forget(id string) {
	now := time.Now()
	k.mu.Lock()
	t := k.attempts[id]
	delete(k.attempts, id)
	for old, at := range k.stored {
		if now.Sub(at) > storedMemory {
			delete(k.stored, old)
		}
	}
	k.stored[id] = now
	k.mu.Unlock()
	if t != nil {
		t.release(false)
	}
}

// lane returns the cluster's. The caller holds the lock.
func (k *Keeper) lane(clusterID string) *lane {
	l := k.lanes[clusterID]
	if l == nil {
		l = &lane{follows: make(chan struct{}, k.o.Follows), reads: make(chan struct{}, k.o.Reads)}
		k.lanes[clusterID] = l
	}
	return l
}

func spoolDir(root, attemptID string) string { return filepath.Join(root, attemptID) }
