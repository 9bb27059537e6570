package kube

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

// object is a kind that a shelf keeps.
type object interface {
	*batchv1.Job | *corev1.Pod
	metav1.Object
}

// shelf is where a reflector puts the trimmed objects of one kind, found by name and by attempt. It tells of changes at
// once and from the reflector's own goroutine: nothing queues in between.
type shelf[T object] struct {
	trim    func(T) T
	changed func(attemptID string)
	removed func(T) // with the last state seen; may be nil
	synced  func()  // after the first complete list
	seen    func()  // after every event, bookmarks included

	mu        sync.RWMutex
	byName    map[types.NamespacedName]T
	byAttempt map[string]map[types.NamespacedName]T
	complete  bool
}

var _ cache.ReflectorBookmarkStore = (*shelf[*batchv1.Job])(nil)

func newShelf[T object](trim func(T) T) *shelf[T] {
	s := &shelf[T]{trim: trim}
	s.reset()
	return s
}

// reset forgets everything; the next list fills it again.
func (s *shelf[T]) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName, s.byAttempt, s.complete = map[types.NamespacedName]T{}, map[string]map[types.NamespacedName]T{}, false
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func attemptOf(o metav1.Object) string { return o.GetLabels()[job.LabelAttempt] }

// Add puts or replaces an object.
func (s *shelf[T]) Add(obj any) error {
	o := s.trim(obj.(T))
	s.mu.Lock()
	fresh := s.putLocked(o)
	s.mu.Unlock()
	s.seen()
	if fresh {
		s.changed(attemptOf(o))
	}
	return nil
}

// Update replaces an object.
func (s *shelf[T]) Update(obj any) error { return s.Add(obj) }

// putLocked reports whether the object is news.
func (s *shelf[T]) putLocked(o T) bool {
	key, attempt := keyOf(o), attemptOf(o)
	if old, there := s.byName[key]; there {
		if old.GetUID() == o.GetUID() && old.GetResourceVersion() == o.GetResourceVersion() {
			return false
		}
		s.dropLocked(old)
	}
	s.byName[key] = o
	if s.byAttempt[attempt] == nil {
		s.byAttempt[attempt] = map[types.NamespacedName]T{}
	}
	s.byAttempt[attempt][key] = o
	return true
}

func (s *shelf[T]) dropLocked(o T) {
	key, attempt := keyOf(o), attemptOf(o)
	delete(s.byName, key)
	delete(s.byAttempt[attempt], key)
	if len(s.byAttempt[attempt]) == 0 {
		delete(s.byAttempt, attempt)
	}
}

// Delete takes an object away; obj is its last state.
func (s *shelf[T]) Delete(obj any) error {
	o := s.trim(obj.(T))
	s.mu.Lock()
	if old, there := s.byName[keyOf(o)]; there {
		s.dropLocked(old)
	}
	s.mu.Unlock()
	s.seen()
	if s.removed != nil {
		s.removed(o)
	}
	s.changed(attemptOf(o))
	return nil
}

// Replace makes the shelf equal to a complete list.
func (s *shelf[T]) Replace(list []any, _ string) error {
	var news []T
	var gone []T
	kept := make(map[types.NamespacedName]bool, len(list))
	s.mu.Lock()
	for _, obj := range list {
		o := s.trim(obj.(T))
		kept[keyOf(o)] = true
		if s.putLocked(o) {
			news = append(news, o)
		}
	}
	for key, o := range s.byName {
		if !kept[key] {
			s.dropLocked(o)
			gone = append(gone, o)
		}
	}
	first := !s.complete
	s.complete = true
	s.mu.Unlock()

	s.seen()
	for _, o := range gone {
		if s.removed != nil {
			s.removed(o)
		}
		s.changed(attemptOf(o))
	}
	for _, o := range news {
		s.changed(attemptOf(o))
	}
	if first {
		s.synced()
	}
	return nil
}

// Resync has no meaning here: nothing is queued that could get lost.
func (s *shelf[T]) Resync() error { return nil }

// Bookmark says that the stream is alive.
func (s *shelf[T]) Bookmark(string) error {
	s.seen()
	return nil
}

func (s *shelf[T]) get(key types.NamespacedName) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[key]
}

func (s *shelf[T]) of(attempt string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]T, 0, len(s.byAttempt[attempt]))
	for _, o := range s.byAttempt[attempt] {
		list = append(list, o)
	}
	return list
}

func (s *shelf[T]) all() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]T, 0, len(s.byName))
	for _, o := range s.byName {
		list = append(list, o)
	}
	return list
}

func (s *shelf[T]) isComplete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.complete
}

// graves keeps the last state of objects that were deleted, for a while: it may hold a result.
type graves[T metav1.Object] struct {
	mu  sync.Mutex
	all map[types.UID]grave[T]
}

type grave[T metav1.Object] struct {
	object T
	at     time.Time
}

// Bounds of graves.
const (
	graveTime = 10 * time.Minute
	maxGraves = 10_000
)

func (g *graves[T]) add(o T) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[types.UID]grave[T]{}
	}
	g.all[o.GetUID()] = grave[T]{o, now}
	if len(g.all)%256 != 0 {
		return // a look at all of them now and then is enough
	}
	for uid, old := range g.all {
		if now.Sub(old.at) > graveTime || len(g.all) > maxGraves {
			delete(g.all, uid)
		}
	}
}

func (g *graves[T]) get(uid types.UID) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[uid].object
}

// of returns those of an attempt.
func (g *graves[T]) of(attempt string) []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []T
	for _, old := range g.all {
		if old.object.GetLabels()[job.LabelAttempt] == attempt {
			list = append(list, old.object)
		}
	}
	return list
}
