package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Times of a watch.
const (
	// maxSilence is the default of WatchOptions.Silence.
	maxSilence = 4 * time.Minute
	// firstRetry and lastRetry bound the pauses between attempts at opening a stream.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 20 * time.Second
)

// WatchOptions configure a Watch. The callbacks come from goroutines of the watch, one at a time for each kind of object;
// they must return quickly.
type WatchOptions struct {
	ClusterID string
	// Client gives the cluster's present client, as Registry.Get does.
	Client func(ctx context.Context) (*Client, error)
	// Selector selects the objects by label.
	Selector string
	// Changed is told the attempt whose Job or pods changed.
	Changed func(attemptID string)
	// Synced is called each time when the cache is complete: at the start and after the client was replaced.
	Synced func()
	// Reachable is told when the cluster can be reached, or no longer; err is why not. Optional.
	Reachable func(ok bool, err error)
	// Silence is how long a stream may bring nothing before it is opened again; default 4 min, for the bookmark comes
	// about once a minute.
	Silence time.Duration
	Logger  hclog.Logger
}

// Watch keeps the Jobs and pods of one cluster at hand. It opens its streams again after every break, from where they
// were, with growing pauses while the cluster is away. All methods are safe for concurrent use; what they return is
// shared and must not be changed.
//
// While Synced is false, or after an absence of the cluster, an object that is missing here may exist all the same: ask
// the API server before concluding anything.
type Watch struct {
	o      WatchOptions
	jobs   *shelf[*batchv1.Job]
	pods   *shelf[*corev1.Pod]
	graves graves[*batchv1.Job]
	gone   graves[*corev1.Pod]

	jobStream, podStream streamState

	mu        sync.Mutex
	reachable *bool // nil: not known yet
	problem   error // why a stream is not open; nil: both are, or none was tried
}

// streamState is what is known of the stream of one kind.
type streamState struct {
	up   atomic.Bool
	last atomic.Int64 // unix nanoseconds of the last sign of life
}

// NewWatch returns a watch that does nothing until Run.
func NewWatch(o WatchOptions) *Watch {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Silence == 0 {
		o.Silence = maxSilence
	}
	w := &Watch{o: o, jobs: newShelf(trimJob), pods: newShelf(trimPod)}
	synced := func() {
		if w.Synced() && o.Synced != nil {
			o.Synced()
		}
	}
	w.jobs.changed, w.jobs.synced, w.jobs.removed = o.Changed, synced, w.graves.add
	w.pods.changed, w.pods.synced, w.pods.removed = o.Changed, synced, w.gone.add
	w.jobs.seen, w.pods.seen = w.jobStream.touch, w.podStream.touch
	return w
}

func (s *streamState) touch() { s.last.Store(time.Now().UnixNano()) }

func (s *streamState) silent(limit time.Duration) bool {
	return s.up.Load() && time.Since(time.Unix(0, s.last.Load())) > limit
}

// Synced says whether Jobs and pods were listed completely from the present client.
func (w *Watch) Synced() bool { return w.jobs.isComplete() && w.pods.isComplete() }

// Job returns a Job, or nil.
func (w *Watch) Job(namespace, name string) *batchv1.Job {
	return w.jobs.get(types.NamespacedName{Namespace: namespace, Name: name})
}

// Jobs returns all Jobs, in no order.
func (w *Watch) Jobs() []*batchv1.Job { return w.jobs.all() }

// PodsOf returns the pods of an attempt, in no order.
func (w *Watch) PodsOf(attemptID string) []*corev1.Pod { return w.pods.of(attemptID) }

// Removed returns the last state of a Job that was deleted within about ten minutes, or nil.
func (w *Watch) Removed(uid types.UID) *batchv1.Job { return w.graves.get(uid) }

// RemovedPods returns the last states of the attempt's pods that were deleted within about ten minutes, in no order. They
// say whether a container had ended before it went.
func (w *Watch) RemovedPods(attemptID string) []*corev1.Pod { return w.gone.of(attemptID) }

// Problem says why a stream is not open, with the cluster named; nil when all is well or nothing was tried yet.
func (w *Watch) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Run watches until ctx ends and returns when everything that it started has ended. Call it once.
func (w *Watch) Run(ctx context.Context) {
	pause := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 100, Cap: lastRetry}
	var last *Client
	for ctx.Err() == nil {
		c, err := w.o.Client(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			w.note(err)
			sleep(ctx, pause.Step())
			continue
		}
		pause = wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 100, Cap: lastRetry}
		if c != last {
			w.jobs.reset()
			w.pods.reset()
			last = c
		}
		w.follow(ctx, c)
	}
}

// follow keeps both streams open on one client until that is replaced, the streams fall silent, or the cluster answers
// again after an absence during which their pauses have grown.
func (w *Watch) follow(ctx context.Context, c *Client) {
	inner, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()

	streams.Go(func() {
		reflect(inner, w, &w.jobStream, "jobs", &batchv1.Job{}, w.jobs,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.Clientset.BatchV1().Jobs(c.Namespace).List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.Clientset.BatchV1().Jobs(c.Namespace).Watch(ctx, o)
			})
	})
	streams.Go(func() {
		reflect(inner, w, &w.podStream, "pods", &corev1.Pod{}, w.pods,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.Clientset.CoreV1().Pods(c.Namespace).List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.Clientset.CoreV1().Pods(c.Namespace).Watch(ctx, o)
			})
	})

	silence := time.NewTicker(w.o.Silence / 8)
	defer silence.Stop()
	for {
		var recovered <-chan struct{}
		if c.link != nil {
			recovered = c.link.recovered()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Done():
			return
		case <-recovered:
			// The streams may have opened by themselves just now; give them the moment.
			sleep(ctx, 200*time.Millisecond+rand.N(800*time.Millisecond))
			if !w.jobStream.up.Load() || !w.podStream.up.Load() {
				return
			}
		case <-silence.C:
			if w.jobStream.silent(w.o.Silence) || w.podStream.silent(w.o.Silence) {
				w.o.Logger.Warn("a watch brought nothing for a while and is opened again", "cluster", w.o.ClusterID, "silence", w.o.Silence.String())
				return
			}
		}
	}
}

// lister is a cache.ListerWatcher without the streaming list, whose pauses in client-go do not end with the context.
type lister struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (l lister) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.list(context.Background(), o)
}
func (l lister) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.watch(context.Background(), o)
}
func (l lister) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return l.list(ctx, o)
}
func (l lister) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return l.watch(ctx, o)
}

// IsWatchListSemanticsUnSupported is how client-go asks.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// reflect keeps one kind until ctx ends.
func reflect(ctx context.Context, w *Watch, state *streamState, name string, kind runtime.Object, store cache.ReflectorStore,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	defer state.up.Store(false)
	noted := func(err error) error {
		if err != nil && ctx.Err() == nil {
			state.up.Store(false)
			err = fmt.Errorf("cluster %s: %s: %w", w.o.ClusterID, name, err)
			w.note(err)
		}
		return err
	}
	l := lister{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			state.up.Store(false) // a list means that the stream broke for good
			o.LabelSelector = w.o.Selector
			obj, err := list(ctx, o)
			return obj, noted(err)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = w.o.Selector
			stream, err := open(ctx, o)
			if noted(err) != nil {
				return nil, err
			}
			state.touch()
			state.up.Store(true)
			w.note(nil)
			return stream, nil
		},
	}
	quiet := klog.Logger{}
	r := cache.NewReflectorWithOptions(l, kind, store, cache.ReflectorOptions{
		Logger: &quiet, Name: w.o.ClusterID + "/" + name,
		Backoff: &wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 100, Cap: lastRetry},
	})
	r.RunWithContext(ctx)
}

// note keeps whether the cluster can be reached and tells of changes. Any answer of the cluster proves that it can.
func (w *Watch) note(err error) {
	ok := err == nil || !Classify(err).Unreachable()
	w.mu.Lock()
	before, known := w.problem, w.reachable != nil
	turned := !known || *w.reachable != ok
	w.reachable = &ok
	switch {
	case err != nil:
		w.problem = err
	case w.jobStream.up.Load() && w.podStream.up.Load():
		w.problem = nil
	}
	after := w.problem
	w.mu.Unlock()

	if after != nil && (before == nil || Classify(before) != Classify(after)) {
		w.o.Logger.Warn("watch is not open", "cluster", w.o.ClusterID, "class", string(Classify(after)), "error", after)
	}
	if turned && w.o.Reachable != nil {
		w.o.Reachable(ok, err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
