package dispatch

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

// table holds what a watch has seen of one kind of object, found by attempt. It is the store of a reflector, and tells
// of each change which attempt it concerns. Objects are trimmed on their way in and never changed afterwards.
type table[T metav1.Object] struct {
	trim    func(T)
	changed func(obj T)
	// gone is told of an object as it was last seen; nil: nobody is.
	gone func(obj T)
	// filled is told of every full list.
	filled func()

	mu        sync.RWMutex
	objects   map[string]T // by name
	byAttempt map[string]map[string]T
	synced    bool
}

func newTable[T metav1.Object](trim, changed, gone func(T), filled func()) *table[T] {
	return &table[T]{trim: trim, changed: changed, gone: gone, filled: filled, objects: map[string]T{}, byAttempt: map[string]map[string]T{}}
}

func attemptOf(o metav1.Object) string { return o.GetLabels()[job.LabelAttempt] }

// of returns the attempt's objects and whether the table has been filled at all.
func (t *table[T]) of(attempt string) (list []T, synced bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, o := range t.byAttempt[job.LabelValue(attempt)] {
		list = append(list, o)
	}
	return list, t.synced
}

// put stores the object. It returns another object that it takes the place of: one of the same name that has gone
// without the watch having seen it.
func (t *table[T]) put(o T) (replaced T, found bool) {
	old, there := t.objects[o.GetName()]
	if there {
		t.unlink(old)
	}
	t.objects[o.GetName()] = o
	id := attemptOf(o)
	if t.byAttempt[id] == nil {
		t.byAttempt[id] = map[string]T{}
	}
	t.byAttempt[id][o.GetName()] = o
	return old, there && old.GetUID() != o.GetUID()
}

func (t *table[T]) unlink(o T) {
	delete(t.objects, o.GetName())
	id := attemptOf(o)
	delete(t.byAttempt[id], o.GetName())
	if len(t.byAttempt[id]) == 0 {
		delete(t.byAttempt, id)
	}
}

// Add, Update, Delete, Replace and Resync make the table the store of a reflector.

func (t *table[T]) Add(obj any) error { return t.Update(obj) }

func (t *table[T]) Update(obj any) error {
	o, ok := obj.(T)
	if !ok {
		return nil
	}
	t.trim(o)
	t.mu.Lock()
	replaced, found := t.put(o)
	t.mu.Unlock()
	if found {
		t.left(replaced)
	}
	t.changed(o)
	return nil
}

func (t *table[T]) Delete(obj any) error {
	o, ok := obj.(T)
	if !ok {
		return nil
	}
	t.trim(o)
	t.mu.Lock()
	if old, there := t.objects[o.GetName()]; there && old.GetUID() == o.GetUID() {
		t.unlink(old)
	}
	t.mu.Unlock()
	t.left(o)
	return nil
}

// Replace takes over a full list. What is missing from it has gone unseen; its last known form is all there is.
func (t *table[T]) Replace(list []any, _ string) error {
	present := make(map[types.UID]bool, len(list))
	fresh := make([]T, 0, len(list))
	for _, obj := range list {
		if o, ok := obj.(T); ok {
			t.trim(o)
			present[o.GetUID()] = true
			fresh = append(fresh, o)
		}
	}
	t.mu.Lock()
	var lost []T
	for _, old := range t.objects {
		if !present[old.GetUID()] {
			lost = append(lost, old)
		}
	}
	clear(t.objects)
	clear(t.byAttempt)
	for _, o := range fresh {
		t.put(o)
	}
	t.synced = true
	t.mu.Unlock()
	for _, o := range lost {
		t.left(o)
	}
	for _, o := range fresh {
		t.changed(o)
	}
	t.filled()
	return nil
}

func (t *table[T]) Resync() error { return nil }

func (t *table[T]) left(o T) {
	if t.gone != nil {
		t.gone(o)
	}
	t.changed(o)
}
