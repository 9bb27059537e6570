package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// session is one reader's way through one log.
type session struct {
	r     *Reader
	id    string
	o     FollowOptions
	yield func(Chunk, error) bool
	at    Cursor  // behind everything given
	tail  *int64  // not applied yet
	buf   *[]byte // held while there is something to give, not while waiting

	noted     Chunk     // the last note, so that none comes twice
	looked    time.Time // when the attempt's state was last read
	attempt   process.Attempt
	lastSpoke time.Time
}

// newSession returns one on the heap, which //go:noinline sees to: on the stack of a follower that waits it would make the
// difference between 16 and 32 KB.
//
//go:noinline
func newSession(r *Reader, id string, o FollowOptions, yield func(Chunk, error) bool) *session {
	return &session{r: r, id: id, o: o, yield: yield, at: Cursor{AttemptID: id}, tail: o.Tail}
}

// errDone ends a session without anything more to say: the reader broke off, or has had the end.
var errDone = errors.New("done")

func (s *session) run(ctx context.Context) {
	s.lastSpoke = time.Now()
	// A wake-up before the first look is not lost: the subscription comes first.
	woken, cancel := s.r.o.Attempts.Hub().Subscribe()
	defer cancel()
	if err := s.walk(ctx, woken); !errors.Is(err, errDone) {
		s.yield(Chunk{Cursor: s.at}, err)
	}
}

// walk gives one part after the other; it never returns nil.
func (s *session) walk(ctx context.Context, woken <-chan struct{}) error {
	current := s.o.After != Cursor{} // s.o.After's part is to be gone on with
	if current {
		s.at = s.o.After
	}
	for {
		// In this order: what changes after the look wakes us.
		if err := s.look(ctx); err != nil {
			return err
		}
		v, err := s.r.view(ctx, s.attempt)
		if err != nil {
			return err
		}
		if err := v.check(s.o); err != nil {
			return err
		}
		parts := v.parts(s.o)
		if i := s.next(parts, current); i >= 0 {
			if !current && s.at.Pod == "" && s.tail != nil && !s.o.AllContainers {
				i = len(parts) - 1 // a tail is of the newest part
			}
			if s.earlier(&v, &parts[i]) {
				s.enter(&parts[i])
				continue
			}
			current = false
			if err := s.begin(ctx, &v, &parts[i]); err != nil {
				return err
			}
			if err := s.part(ctx, &v, &parts[i]); err != nil {
				return err
			}
			continue
		}
		if current && v.closed {
			return ErrCursor
		}
		if s.over(&v) || !s.o.Follow {
			return s.end(&v, parts)
		}
		if err := s.note(parts); err != nil {
			return err
		}
		if err := s.wait(ctx, v.changed, woken); err != nil {
			return err
		}
	}
}

// next is the index of the part to give: the one that is to be gone on with, or the one behind what was given; -1: none yet.
func (s *session) next(parts []part, current bool) int {
	at := func(p part) bool {
		return p.pod == s.at.Pod && p.c.Name == s.at.Container && p.c.Restart == s.at.Restart
	}
	i := slices.IndexFunc(parts, at)
	switch {
	case current:
		return i
	case s.at.Pod != "" && i < 0:
		// The choice went from the pod's init container to main.
		return slices.IndexFunc(parts, func(p part) bool { return p.pod == s.at.Pod })
	case i+1 < len(parts):
		return i + 1 // 0 at the start
	default:
		return -1
	}
}

// earlier says whether a part has ended and holds nothing of the time that is asked for.
func (s *session) earlier(v *view, p *part) bool {
	if s.o.Since.IsZero() || s.o.After != (Cursor{}) || p.c.Bytes == 0 || p.c.Times.at(s.o.Since, p.c.Bytes) < p.c.Bytes {
		return false
	}
	st := v.streams[p.key()]
	return st == nil || st.finished() && st.size.Load() == p.c.Bytes
}

// enter moves to the first byte of a part.
func (s *session) enter(p *part) {
	s.at = Cursor{AttemptID: s.id, Pod: p.pod, Container: p.c.Name, Restart: p.c.Restart}
}

// begin announces a part.
func (s *session) begin(ctx context.Context, v *view, p *part) error {
	if s.o.After == (Cursor{}) || p.key() != (streamKey{s.at.Pod, s.at.Container, s.at.Restart}) {
		s.enter(p)
	}
	if s.o.After == (Cursor{}) && !s.o.Since.IsZero() {
		s.at.Offset = p.c.Times.at(s.o.Since, p.c.Bytes)
	}
	if s.tail != nil {
		offset, err := tailOffset(ctx, s.r, v, p, *s.tail)
		if err != nil {
			return err
		}
		s.at.Offset = max(s.at.Offset, offset)
		if !s.o.AllContainers {
			s.tail = nil
		}
	}
	if s.o.After == (Cursor{}) {
		gaps := p.c.Gaps
		if st := v.streams[p.key()]; st != nil {
			gaps = st.gapList()
		}
		s.at.Origin = origin(gaps, s.at.Offset)
	}
	return s.give(Chunk{Kind: ChunkPod, PodNumber: p.number})
}

// part gives one container instance's bytes until its log has ended, or until what is there when nothing is followed.
func (s *session) part(ctx context.Context, v *view, p *part) error {
	defer s.rest()
	st := v.streams[p.key()]
	if st == nil {
		return s.archived(ctx, p)
	}
	err := s.live(ctx, st)
	if !errors.Is(err, os.ErrClosed) {
		return err
	}
	// It has moved to the archive, where the same bytes stand at the same place; or the Keeper was closed.
	if err = s.archived(ctx, p); errors.Is(err, ErrMissing) {
		return ErrClosed
	}
	return err
}

func (s *session) live(ctx context.Context, st *stream) error {
	for placed := false; ; {
		// In this order: what comes after the channel was taken wakes us; what ended before the read has all been read.
		grew, ended := st.grew.wait(), st.finished()
		if !placed {
			to, lost, known := st.place(s.at)
			if placed = known; known {
				if err := s.move(to, lost); err != nil {
					return err
				}
			}
		}
		n, err := 0, io.EOF
		buf := s.room()
		if placed {
			n, err = st.ReadAt(buf, s.at.Offset)
		}
		if n > 0 {
			if err := s.data(buf[:n], st.gapList()); err != nil {
				return err
			}
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if ended || !s.o.Follow {
			return nil
		}
		if text := st.trouble(); text != "" {
			if err := s.remark(Chunk{Kind: ChunkNote, Code: "log-unreadable", Note: "the log cannot be read now: " + text}); err != nil {
				return err
			}
		}
		s.rest()
		if err := s.wait(ctx, grew, nil); err != nil {
			return err
		}
	}
}

func (s *session) archived(ctx context.Context, p *part) error {
	m, err := s.r.o.Archive.Manifest(ctx, s.id)
	if err != nil {
		return err
	}
	c := m.find(p.pod, p.c.Name, p.c.Restart)
	if c == nil {
		return ErrMissing
	}
	to, lost := place(c.Gaps, s.at, c.Bytes)
	if err := s.move(to, lost); err != nil {
		return err
	}
	r, err := s.r.o.Archive.open(ctx, m, p.pod, p.c.Name, p.c.Restart, s.at.Offset)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		buf := s.room()
		n, err := r.Read(buf)
		if n > 0 {
			if err := s.data(buf[:n], c.Gaps); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archived log of pod %s, container %s: %w", p.pod, p.c.Name, err)
		}
	}
}

// pieces are what readers read into. A thousand who wait hold none.
var pieces = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (s *session) room() []byte {
	if s.buf == nil {
		s.buf = pieces.Get().(*[]byte)
	}
	return *s.buf
}

// rest gives the buffer back. What was given of it has been used: the next chunk is being asked for.
func (s *session) rest() {
	if s.buf != nil {
		pieces.Put(s.buf)
		s.buf = nil
	}
}

// look reads the attempt's state.
func (s *session) look(ctx context.Context) error {
	a, err := s.r.o.Attempts.Attempt(ctx, s.id)
	if err != nil {
		return err
	}
	s.attempt, s.looked = a, time.Now()
	return nil
}

// over says whether nothing more will come. All parts have been given.
func (s *session) over(v *view) bool {
	a := &s.attempt
	// Without a Job there is nothing to store.
	return a.State.Terminal() && (v.closed || a.JobUID == "" || a.LogsStored)
}

func (s *session) end(v *view, parts []part) error {
	a := &s.attempt
	if a.State.Terminal() && a.LogsStored && !v.closed {
		return ErrMissing
	}
	if len(parts) == 0 && len(v.m.Pods) > 0 {
		c := Chunk{Kind: ChunkNote, State: a.State, Note: "no container has started"}
		if s.o.Container != "" {
			c.Note = fmt.Sprintf("container %s has not started", s.o.Container)
		}
		if err := s.remark(c); err != nil {
			return err
		}
	}
	e := &End{State: a.State, Code: a.ReasonCode, Reason: a.Reason, ExitCode: a.ExitCode, Complete: a.State.Terminal()}
	for _, p := range parts {
		e.Complete = e.Complete && p.c.Complete && len(p.c.Gaps) == 0
	}
	s.at.End = s.over(v)
	if err := s.give(Chunk{Kind: ChunkEnd, State: e.State, Code: e.Code, Note: e.Reason, End: e}); err != nil {
		return err
	}
	return errDone
}

// note says what is being waited for.
func (s *session) note(parts []part) error {
	a := &s.attempt
	c := Chunk{Kind: ChunkNote, State: a.State, Code: a.ReasonCode, Note: string(a.State)}
	if a.Reason != "" {
		c.Note += ": " + a.Reason
	}
	switch {
	case a.State.Terminal():
		c.Note = "the rest of the log is being read"
	case a.UnreachableSince != nil:
		c.Note = "the cluster has not answered since " + a.UnreachableSince.UTC().Format(time.RFC3339)
	case a.State != process.Running:
	case len(parts) == 0 && s.o.Container != "":
		c.Note = fmt.Sprintf("container %s has not started", s.o.Container)
	case len(parts) > 0 && a.Reason == "":
		return nil // the container has ended, its attempt is about to
	}
	return s.remark(c)
}

// remark gives a note unless it is the one given last.
func (s *session) remark(c Chunk) error {
	if s.noted.Note == c.Note && s.noted.Code == c.Code {
		return nil
	}
	s.noted = c
	return s.give(c)
}

// move goes to where a position of another server's log is in this one.
func (s *session) move(to Cursor, lost bool) error {
	if to == s.at {
		return nil
	}
	s.at = to
	if !lost {
		return nil // the mark there says it
	}
	return s.remark(Chunk{Kind: ChunkNote, Code: "log-again", Note: "this log was read anew and your place in it is not known: it comes again from its beginning"})
}

func (s *session) data(p []byte, gaps []Gap) error {
	s.at.Offset += int64(len(p))
	s.at.Origin = origin(gaps, s.at.Offset)
	s.noted = Chunk{}
	return s.give(Chunk{Kind: ChunkData, Data: p})
}

func (s *session) give(c Chunk) error {
	c.Cursor = s.at
	s.lastSpoke = time.Now()
	if !s.yield(c, nil) {
		return errDone
	}
	return nil
}

// wait returns when one of the channels says so, or after a heartbeat. Woken counts only when the last look at the attempt
// is long enough ago: many events are not many looks.
func (s *session) wait(ctx context.Context, changed, woken <-chan struct{}) error {
	var beat, settled <-chan time.Time
	if s.o.Heartbeat > 0 {
		t := time.NewTimer(time.Until(s.lastSpoke.Add(s.o.Heartbeat)))
		defer t.Stop()
		beat = t.C
	}
	for {
		select {
		case <-changed:
			return nil
		case <-settled:
			return nil
		case <-woken:
			t := time.NewTimer(time.Until(s.looked.Add(s.r.o.Settle)))
			defer t.Stop()
			settled, woken = t.C, nil
		case <-beat:
			return s.give(Chunk{Kind: ChunkHeartbeat})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
