package logs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// stream is the log of one container instance while it is under the Keeper's care.
type stream struct {
	t    *attempt
	key  streamKey
	path string
	// silent: an earlier Keeper read the log to its end and found nothing.
	silent bool
	done   chan struct{} // closed when the log has come to its end, complete or not
	size   atomic.Int64  // bytes that readers may read
	grew   signal        // size grew, or the log ended

	mu       sync.Mutex
	spool    *spool // nil: not open yet
	released bool
	known    news
	told     signal    // known changed
	hurried  time.Time // since when known.hurried
	problem  string    // why reading does not go on; empty: it does
	complete bool
	gaps     []Gap
	times    Times
	first    int64       // stamp of its first line of all, whoever read it; 0: not known
	dog      *time.Timer // ends the read under way when it is silent for too long
}

func newStream(t *attempt, key streamKey, silent bool) *stream {
	return &stream{
		t: t, key: key, silent: silent, done: make(chan struct{}), first: t.past[key.String()],
		path: filepath.Join(t.dir, key.pod, fileName(key.container, key.restart)),
	}
}

// news is what is known of a container instance from elsewhere than its log. Nothing in it is ever taken back.
type news struct {
	ended    bool // it was seen to have ended
	forced   bool // it is to be taken as ended: its attempt has
	previous bool // a later instance of the container runs
	dropped  bool // so does a still later one: the cluster no longer has this log
	hurried  bool // the attempt has ended: from now on, patience has a limit
	leaving  bool // the pod is about to be removed: its log is opened at once
	cut      bool // its cluster was removed: nothing more is read
}

// over says whether the log has an end that can be read up to.
func (n news) over() bool { return n.ended || n.forced || n.cut }

// tell passes news on.
func (s *stream) tell(n news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.known
	n.ended, n.forced = n.ended || was.ended, n.forced || was.forced
	n.previous, n.dropped, n.hurried = n.previous || was.previous, n.dropped || was.dropped, n.hurried || was.hurried
	n.leaving, n.cut = n.leaving || was.leaving, n.cut || was.cut
	if n == was {
		return
	}
	if n.hurried && !was.hurried {
		s.hurried = time.Now()
	}
	s.known = n
	if s.dog != nil && n.over() {
		s.dog.Reset(s.patience())
	}
	s.told.wake()
}

// describe fills in what only the stream knows.
func (s *stream) describe(c *ContainerLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Bytes, c.Complete = s.size.Load(), s.complete // the size first: the times are then at least as new
	c.Times = s.times
	c.Gaps = append([]Gap(nil), s.gaps...)
}

// finished says whether the log has come to its end.
func (s *stream) finished() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// trouble says why reading does not go on; empty when it does.
func (s *stream) trouble() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// ReadAt implements io.ReaderAt over what is spooled; os.ErrClosed says that the log has moved to the archive.
func (s *stream) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	sp, released := s.spool, s.released
	s.mu.Unlock()
	if released {
		return 0, os.ErrClosed
	}
	if sp == nil {
		return 0, io.EOF
	}
	if left := s.size.Load() - off; left < int64(len(p)) {
		if left <= 0 {
			return 0, io.EOF
		}
		p = p[:left]
	}
	n, err := sp.data.ReadAt(p, off) // it is there: something was written
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// open opens the spool and publishes what it holds.
func (s *stream) open() error {
	sp, err := openSpool(s.path)
	if err != nil {
		return err
	}
	if s.silent && sp.data == nil {
		sp.end = &spoolEnd{Complete: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spool, s.gaps, s.times = sp, sp.gaps, sp.times
	if s.first == 0 && origin(sp.gaps, sp.size) == 0 {
		s.first = sp.pos.Start
	}
	if sp.end != nil {
		s.complete = sp.end.Complete
	}
	s.t.used.Add(sp.size)
	s.publish()
	return nil
}

// publish lets readers see what the spool holds now.
func (s *stream) publish() {
	s.size.Store(s.spool.size)
	s.grew.wake()
}

// release closes the files. The run has ended.
func (s *stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	if s.spool != nil {
		s.spool.close()
	}
	s.grew.wake()
}
