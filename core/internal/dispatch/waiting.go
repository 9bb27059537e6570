package dispatch

import (
	"slices"
	"strings"
	"sync"
)

// waiting are the attempts that no cluster takes now. They are decided anew when something changed, one by one: the
// oldest submission first, so that what became free goes to whom it is due. Each second turn goes to the attempt that
// was asked longest ago instead; otherwise a list that changes faster than it is gone through would starve its end.
type waiting struct {
	mu         sync.Mutex
	list       []waiter // by id, which is the order of submission
	generation int64    // counts the changes
	turn       int
	kick       chan struct{}
}

type waiter struct {
	id    string
	asked int64 // the generation that it has been asked in
}

func newWaiting() *waiting { return &waiting{kick: make(chan struct{}, 1)} }

func (w *waiting) find(id string) (int, bool) {
	return slices.BinarySearchFunc(w.list, id, func(e waiter, id string) int { return strings.Compare(e.id, id) })
}

// add says that the attempt waits, and in which generation the decision that says so began.
func (w *waiting) add(id string, asked int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, found := w.find(id)
	if found {
		w.list[i].asked = asked
	} else {
		w.list = slices.Insert(w.list, i, waiter{id, asked})
	}
	if asked < w.generation {
		w.wake()
	}
}

func (w *waiting) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, found := w.find(id); found {
		w.list = slices.Delete(w.list, i, i+1)
	}
}

// changed makes everyone that waits due.
func (w *waiting) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.generation++
	if len(w.list) > 0 {
		w.wake()
	}
}

func (w *waiting) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *waiting) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// next returns whom to ask, marked as asked; empty: nobody is due.
func (w *waiting) next() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	found := -1
	for i, e := range w.list {
		if e.asked >= w.generation {
			continue
		}
		if found < 0 || e.asked < w.list[found].asked {
			found = i
			if w.turn%2 == 1 {
				break
			}
		}
	}
	if found < 0 {
		return ""
	}
	w.list[found].asked = w.generation
	return w.list[found].id
}
