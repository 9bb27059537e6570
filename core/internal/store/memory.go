package store

import (
	"sync/atomic"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// memory keeps what every placement reads and hardly anybody writes, while this server is the only writer, as it is with
// SQLite and as the leader: the clusters and the default among them. Whoever asks after a write has returned, or has read its events, gets what was written.
type memory struct {
	alone      bool         // there is no other server
	term       atomic.Int64 // the epoch in which this server leads, when there may be others; 0: it does not
	writing    atomic.Int64
	generation atomic.Int64 // of writes that have ended
	clusters   remembered[[]cluster.Cluster]
	byDefault  remembered[string]
}

// remembered is a value as of a generation.
type remembered[T any] struct{ p atomic.Pointer[asOf[T]] }

type asOf[T any] struct {
	generation int64
	value      T
}

// forgetful are the writes that may change what is kept.
var forgetful = map[string]bool{
	"create-cluster": true, "update-cluster": true, "observe": true, "delete-cluster": true, "reseal": true, "set-setting": true, "ensure-setting": true,
}

// begin says that such a write begins; end is called when it has ended, whatever came of it, and before anybody is told.
func (m *memory) begin() (end func()) {
	m.writing.Add(1)
	return func() {
		m.generation.Add(1)
		m.writing.Add(-1)
	}
}

// recall gives the kept value, or reads it and keeps it unless a write has begun meanwhile.
func recall[T any](m *memory, r *remembered[T], read func() (T, error)) (T, error) {
	if !m.alone && m.term.Load() == 0 || m.writing.Load() != 0 {
		return read()
	}
	generation := m.generation.Load()
	if kept := r.p.Load(); kept != nil && kept.generation == generation {
		return kept.value, nil
	}
	value, err := read()
	if err == nil && m.writing.Load() == 0 && m.generation.Load() == generation {
		r.p.Store(&asOf[T]{generation, value})
	}
	return value, err
}
