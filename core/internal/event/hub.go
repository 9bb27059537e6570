package event

import "sync"

// Hub wakes those who wait for new events. It carries no events itself: a woken reader reads the list from where it
// stood, so a missed or doubled wake-up does no harm. The zero value is ready. Safe for concurrent use.
type Hub struct {
	mu      sync.Mutex
	waiters map[chan struct{}]struct{}
}

// Subscribe returns a channel that receives after each Wake (several may become one) until cancel is called.
func (h *Hub) Subscribe() (woken <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters == nil {
		h.waiters = map[chan struct{}]struct{}{}
	}
	h.waiters[ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiters, ch)
	}
}

// Wake wakes every subscriber. It never blocks.
func (h *Hub) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiters {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
