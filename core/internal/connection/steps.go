package connection

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// steps follows a test through its phases, and ends it when one of them, or all together, take too long. The phases on
// the way to the first answer are told by the network's own goroutines.
type steps struct {
	limit, total time.Duration
	cancel       context.CancelCauseFunc
	whole        *time.Timer

	mu     sync.Mutex
	closed bool
	done   []cluster.Phase
	name   string // of the phase under way; empty: none
	began  time.Time
	note   string // what was seen in it
	guess  bool   // it stands for whichever comes first
	timer  *time.Timer
	late   *tooLong
}

// tooLong says which phase took too long.
type tooLong struct {
	phase string
	limit time.Duration
	whole bool // the limit is that of the whole test
}

func (e *tooLong) Error() string {
	return fmt.Sprintf("phase %s took longer than %s", e.phase, e.limit)
}
func (e *tooLong) Timeout() bool { return true }

func newSteps(limit, total time.Duration, cancel context.CancelCauseFunc) *steps {
	s := &steps{limit: limit, total: total, cancel: cancel}
	s.whole = time.AfterFunc(total, func() { s.expire("", tooLong{limit: total, whole: true}) })
	return s
}

// expire ends the test unless the phase that it is about is over.
func (s *steps) expire(phase string, late tooLong) {
	s.mu.Lock()
	if s.closed || s.late != nil || phase != "" && phase != s.name || s.name == "" {
		s.mu.Unlock()
		return
	}
	late.phase = s.name
	s.late = &late
	s.mu.Unlock()
	s.cancel(&late)
}

// begin starts a phase, and so ends the one before well. One that was there before does not come again.
func (s *steps) begin(name string) { s.start(name, false) }

// await starts a phase that leaves no trace when another one begins instead.
func (s *steps) await(name string) { s.start(name, true) }

func (s *steps) start(name string, guess bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.late != nil {
		return
	}
	if s.name == name {
		s.guess = false
		return
	}
	for _, p := range s.done {
		if p.Name == name {
			return
		}
	}
	if s.guess {
		s.timer.Stop()
		s.name = ""
	}
	s.passLocked()
	s.name, s.began, s.note, s.guess = name, time.Now(), "", guess
	s.timer = time.AfterFunc(s.limit, func() { s.expire(name, tooLong{limit: s.limit}) })
}

// remark says what was seen in the phase, if it is under way.
func (s *steps) remark(phase, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == phase {
		s.note = note
	}
}

// pass ends the phase under way well.
func (s *steps) pass(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if note != "" {
		s.note = note
	}
	s.passLocked()
}

func (s *steps) passLocked() { s.recordLocked(true, s.note) }

// fail ends the phase under way badly, and returns its name.
func (s *steps) fail(message string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.name
	s.recordLocked(false, message)
	return name
}

func (s *steps) recordLocked(ok bool, message string) {
	if s.name == "" {
		return
	}
	s.timer.Stop()
	s.done = append(s.done, cluster.Phase{Name: s.name, OK: ok, TookMS: millis(time.Since(s.began)), Message: message})
	s.name, s.guess = "", false
}

// current is the phase under way; empty: none.
func (s *steps) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// expired says what took too long; nil: nothing has.
func (s *steps) expired() *tooLong {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// list returns the phases that have ended.
func (s *steps) list() []cluster.Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]cluster.Phase{}, s.done...)
}

// close ends the watch over the phases, and with it the context of the test.
func (s *steps) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.whole.Stop()
	s.cancel(nil)
}
