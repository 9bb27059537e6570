package event

import (
	"slices"
	"sync"
)

// Hub wakes those who wait for new events. It carries no events itself: a woken reader reads the list from where it
// stood, so a missed or doubled wake-up does no harm. The zero value is ready. Safe for concurrent use.
type Hub struct {
	mu      sync.Mutex
	waiters map[chan struct{}][]Kind
}

// Subscribe returns a channel that receives after each Wake (several may become one) until cancel is called. With kinds,
// only a Wake that names one of them counts.
func (h *Hub) Subscribe(kinds ...Kind) (woken <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters == nil {
		h.waiters = map[chan struct{}][]Kind{}
	}
	h.waiters[ch] = kinds
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiters, ch)
	}
}

// Wake wakes the subscribers whom events of these kinds concern; without kinds, those who wait for any. It never blocks.
func (h *Hub) Wake(kinds ...Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, wanted := range h.waiters {
		if len(wanted) > 0 && !slices.ContainsFunc(kinds, func(k Kind) bool { return slices.Contains(wanted, k) }) {
			continue
		}
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// WakeAll wakes every subscriber. It never blocks.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiters {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
