package dispatch

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	listTimeout  = time.Minute
	watchBackoff = 500 * time.Millisecond
	watchMost    = 20 * time.Second
)

// watches are the watches of one cluster: Jobs and pods of our installation in each namespace that holds any.
type watches struct {
	w   *worker
	ctx context.Context

	mu     sync.Mutex
	spaces map[string]*space
}

// space is what is seen of one namespace.
type space struct {
	name   string
	jobs   *table[*batchv1.Job]
	pods   *table[*corev1.Pod]
	cancel context.CancelFunc
	wg     sync.WaitGroup // of the reflectors that fill the tables now
}

func newWatches(ctx context.Context, w *worker) *watches {
	return &watches{w: w, ctx: ctx, spaces: map[string]*space{}}
}

// want has the namespace watched from now on.
func (s *watches) want(namespace string) {
	if namespace == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spaces[namespace] != nil || s.ctx.Err() != nil {
		return
	}
	sp := &space{
		name: namespace,
		jobs: newTable(trimJob, s.w.jobChanged, s.w.jobGone, s.w.wakeAll),
		pods: newTable(trimPod, func(p *corev1.Pod) { s.w.wake(attemptOf(p)) }, nil, s.w.wakeAll),
	}
	s.spaces[namespace] = sp
	s.open(sp)
}

// open starts the two watches of a namespace; s.mu is held.
func (s *watches) open(sp *space) {
	ctx, cancel := context.WithCancel(klog.NewContext(s.ctx, klog.Logger{}))
	sp.cancel = cancel
	s.run(ctx, sp, &batchv1.Job{}, sp.jobs, &source{
		w: s.w, wg: &sp.wg,
		list: func(ctx context.Context, c *kube.Client, o metav1.ListOptions) (runtime.Object, error) {
			return c.Clientset.BatchV1().Jobs(sp.name).List(ctx, o)
		},
		watch: func(ctx context.Context, c *kube.Client, o metav1.ListOptions) (watch.Interface, error) {
			return c.Clientset.BatchV1().Jobs(sp.name).Watch(ctx, o)
		},
	})
	s.run(ctx, sp, &corev1.Pod{}, sp.pods, &source{
		w: s.w, wg: &sp.wg,
		list: func(ctx context.Context, c *kube.Client, o metav1.ListOptions) (runtime.Object, error) {
			return c.Clientset.CoreV1().Pods(sp.name).List(ctx, o)
		},
		watch: func(ctx context.Context, c *kube.Client, o metav1.ListOptions) (watch.Interface, error) {
			return c.Clientset.CoreV1().Pods(sp.name).Watch(ctx, o)
		},
	})
}

func (s *watches) run(ctx context.Context, sp *space, kind runtime.Object, store cache.ReflectorStore, from *source) {
	silent := klog.Logger{}
	r := cache.NewReflectorWithOptions(from, kind, store, cache.ReflectorOptions{
		Logger: &silent, Name: "dispatch", Clock: s.w.d.o.Clock,
		Backoff: &wait.Backoff{Duration: watchBackoff, Cap: watchMost, Steps: 20, Factor: 2, Jitter: 0.5},
	})
	sp.wg.Go(func() { r.RunWithContext(ctx) })
}

// reopen ends every watch and lists anew. It is called when a cluster answers again: a watch that has been mute for the
// time would not know, and one that backs off would sleep on. The old ones end first, so that nothing old comes after
// the new list.
func (s *watches) reopen() {
	for _, sp := range s.list() {
		sp.cancel()
		sp.wg.Wait()
		s.mu.Lock()
		if s.ctx.Err() == nil {
			s.open(sp)
		}
		s.mu.Unlock()
	}
}

// wait ends when every watch has; the context must have ended before. Nothing starts any more then: whoever starts
// looks at the context under the lock.
func (s *watches) wait() {
	for _, sp := range s.list() {
		sp.cancel()
		sp.wg.Wait()
	}
}

func (s *watches) list() []*space {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*space, 0, len(s.spaces))
	for _, sp := range s.spaces {
		list = append(list, sp)
	}
	return list
}

// jobsOf returns the Jobs in any namespace that carry the attempt's label.
func (s *watches) jobsOf(attempt string) (jobs []*batchv1.Job) {
	for _, sp := range s.list() {
		list, _ := sp.jobs.of(attempt)
		jobs = append(jobs, list...)
	}
	return jobs
}

func (s *watches) space(namespace string) *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[namespace]
}

// source lists and watches with whatever client the cluster has at the time.
type source struct {
	w     *worker
	wg    *sync.WaitGroup
	list  func(context.Context, *kube.Client, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, *kube.Client, metav1.ListOptions) (watch.Interface, error)
}

func (s *source) selector(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector = job.Selector(s.w.d.o.Installation)
	return o
}

// ListWithContext lists once.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	c, err := s.w.client(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.list(ctx, c, s.selector(o))
	s.w.reach.note(err)
	return list, err
}

// WatchWithContext opens a watch that ends when the client is replaced.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c, err := s.w.client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.watch(ctx, c, s.selector(o))
	s.w.reach.note(err)
	if err != nil {
		cancel()
		return nil, err
	}
	if replaced := c.Done(); replaced != nil {
		s.wg.Go(func() {
			select {
			case <-replaced:
				cancel()
			case <-ctx.Done():
			}
		})
	}
	return &stoppable{stream, cancel}, nil
}

// List and Watch are there because the reflector's option asks for them; it uses the others.

func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// stoppable ends the request with the watch.
type stoppable struct {
	watch.Interface
	cancel context.CancelFunc
}

func (s *stoppable) Stop() {
	s.cancel()
	s.Interface.Stop()
}

// trimJob drops what nobody reads: a thousand Jobs are held in memory.
func trimJob(j *batchv1.Job) {
	j.ManagedFields, j.Annotations, j.OwnerReferences = nil, nil, nil
	j.Spec.Template = corev1.PodTemplateSpec{}
	j.Spec.Selector, j.Spec.PodFailurePolicy = nil, nil
}

// trimPod keeps of the spec the node and the containers' names.
func trimPod(p *corev1.Pod) {
	p.ManagedFields, p.Annotations, p.OwnerReferences = nil, nil, nil
	p.Spec = corev1.PodSpec{
		NodeName:       p.Spec.NodeName,
		InitContainers: namesOf(p.Spec.InitContainers),
		Containers:     namesOf(p.Spec.Containers),
	}
}

func namesOf(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		out[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
	}
	return out
}
