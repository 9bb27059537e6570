package logs

import "slices"

// A log in which nothing is missing holds the same bytes at the same places whoever reads it from the cluster. Behind a
// loss that is no longer so: two servers, one of which followed while the other did not, have different bytes there. So
// what follows a loss is a stretch of its own, named by the stamp of its first line, and a position says in which stretch it
// is. A position in a stretch that this log does not have is moved to where that log goes on here.

// origin names the stretch of a position; 0: the log's first.
func origin(gaps []Gap, offset int64) (name int64) {
	for _, g := range gaps {
		if g.Origin != 0 && g.Offset < offset {
			name = g.Origin
		}
	}
	return name
}

// place finds a position in a log that has ended, or has come that far. It moves to the mark of the loss that this log has
// and the other one had not. lost: there is none, so the log is given again from its beginning.
func place(gaps []Gap, at Cursor, size int64) (to Cursor, lost bool) {
	if origin(gaps, at.Offset) != at.Origin {
		i := 0 // behind the beginning of the stretch, or at it when the position is before that
		if at.Origin != 0 {
			if i = slices.IndexFunc(gaps, func(g Gap) bool { return g.Origin == at.Origin }); i < 0 {
				i = len(gaps)
			} else if gaps[i].Offset < at.Offset {
				i++
			}
		}
		j := slices.IndexFunc(gaps[i:], func(g Gap) bool { return g.Origin != 0 })
		if lost = j < 0; lost {
			at.Offset, at.Origin = 0, 0
			return at, true
		}
		at.Offset = gaps[i+j].Offset
		at.Origin = origin(gaps, at.Offset)
	}
	if at.Offset > size { // the last mark says why it ends so early
		if at.Offset = size; len(gaps) > 0 {
			at.Offset = gaps[len(gaps)-1].Offset
		}
		at.Origin = origin(gaps, at.Offset)
	}
	return at, false
}

// place finds a position of any server's log in this one. known is false while that cannot be told: this server reads from
// the beginning what another one had read before.
func (s *stream) place(at Cursor) (to Cursor, lost, known bool) {
	over := s.finished()
	size := s.size.Load() // the gaps are then at least as new
	gaps := s.gapList()
	switch {
	case over:
	case size == 0, size < at.Offset && origin(gaps, at.Offset) == at.Origin:
		return at, false, at.Offset == 0
	default:
		size = max(size, at.Offset) // more comes
	}
	to, lost = place(gaps, at, size)
	return to, lost, true
}

func (s *stream) gapList() []Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaps
}
