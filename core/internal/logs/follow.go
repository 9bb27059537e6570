package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var (
	errStalled = errors.New("the cluster did not answer in time")
	// errStranger: what such a cluster does not know may well exist.
	errStranger = errors.New("another cluster answers under this entry than the one on which the attempt runs")
	errQuota    = errors.New("quota reached")
)

// faultError is the kubelet's text in place of output.
type faultError struct{ text string }

func (e *faultError) Error() string { return e.text }

// spoolError is trouble on this side.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

// answer is what one read of the cluster gave.
type answer struct {
	fresh     int64 // bytes that were new
	confirmed bool  // it reached what was read before, so its end is the log's end
	err       error // nil: it ended in order
}

// run reads the container's log to its end, over as many answers of the cluster as it takes.
//
// An orderly end proves nothing: an API server ends its answer in order too when it loses the kubelet. The log is complete
// when the container is known to have ended and a read opened after that gives nothing new.
func (s *stream) run() {
	ctx, o := s.t.ctx, &s.t.k.o
	wait := o.RetryMin
	for s.spool == nil {
		err := s.open()
		if err == nil {
			break
		}
		s.t.k.log.Error("a container's log cannot be spooled now", "attempt", s.t.id, "pod", s.key.pod, "container", s.key.container, "error", err)
		s.setProblem("the log cannot be spooled now")
		if !s.pause(ctx, nil, &wait) {
			return
		}
	}
	if s.spool.end != nil {
		s.close()
		return
	}
	if !s.settle(ctx) {
		return
	}
	wait = o.RetryMin
	var clean bool // the answer before ended in order
	var refusals, strays int
	var goneSince time.Time // since when there is no pod to read from
	for {
		told := s.told.wait()
		known, hurried := s.know()
		switch {
		case known.cut:
			s.give(GapRemoved, "the log ends here: the cluster was removed")
			return
		case known.dropped:
			s.give(GapRotated, "the log of this instance is incomplete: the container was restarted again before it was read")
			return
		case known.hurried && time.Since(hurried) > o.FinishTimeout:
			s.give(GapTimeout, "the log may be incomplete here: the cluster did not give the rest in time"+because(s.trouble()))
			return
		}
		free, ok := s.slot(ctx, known.over(), told)
		if !ok {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		a := s.read(ctx, known)
		free()
		if ctx.Err() != nil {
			return
		}
		if a.fresh > 0 {
			wait, refusals, strays = o.RetryMin, 0, 0
		}
		if a.err == nil {
			s.setProblem("")
		}
		var spool *spoolError
		switch err := a.err; {
		case errors.Is(err, errQuota):
			s.give("", "") // the marker stands already
			return
		case errors.As(err, &spool):
			s.t.k.log.Error("a container's log cannot be spooled now", "attempt", s.t.id, "pod", s.key.pod, "container", s.key.container, "error", err)
			s.setProblem("the log cannot be spooled now")
		case err == nil && known.over():
			switch {
			case a.fresh > 0:
				clean = true
				continue // and now see that there is nothing more
			case a.confirmed && !known.ended:
				s.give(GapTimeout, "the container was not seen to end; what it printed later is not kept")
				return
			case a.confirmed && s.spool.size == 0 && s.first != 0:
				s.give(GapRotated, beginning)
				return
			case a.confirmed:
				s.conclude(true)
				return
			}
			// Cut short, or the cluster no longer has what was read last.
			if strays++; known.hurried && strays > 2 && time.Since(hurried) > o.FinishTimeout/10 {
				s.give(GapRotated, "lines may be missing here: the cluster does not give again what was read last")
				return
			}
		case errors.Is(err, errStalled) && !known.over():
			continue // silent, perhaps rightly so
		case gone(err):
			if goneSince.IsZero() {
				goneSince = time.Now()
			}
			if clean && !known.over() && time.Since(goneSince) < o.FinishGrace {
				// Its last state, which says that it had ended, is on its way: the log may be whole.
				if !s.pause(ctx, told, &wait) {
					return
				}
				continue
			}
			if clean && known.ended {
				s.conclude(true)
			} else {
				s.give(GapPodGone, "the log may be incomplete here: the pod was gone before its end was read")
			}
			return
		case err != nil:
			s.setProblem(sentence(err))
			if refused(err) {
				refusals++
			}
			if known.hurried && refusals > 2 && time.Since(hurried) > o.FinishTimeout/10 {
				s.give(GapRefused, "the log may be incomplete here: the cluster refused to give the rest"+because(sentence(err)))
				return
			}
		}
		clean = a.err == nil
		if !s.pause(ctx, told, &wait) {
			return
		}
	}
}

// settle gives a container that has just started a moment to end, unless its pod is about to go. It returns false when ctx has ended.
func (s *stream) settle(ctx context.Context) bool {
	timer := time.NewTimer(s.t.k.o.FollowAfter)
	defer timer.Stop()
	for {
		told := s.told.wait()
		if known, _ := s.know(); known.over() || known.leaving {
			return true
		}
		select {
		case <-told:
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (s *stream) know() (news, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.hurried
}

func (s *stream) setProblem(text string) {
	s.mu.Lock()
	same := s.problem == text
	s.problem = text
	s.mu.Unlock()
	if !same {
		s.grew.wake()
		s.t.changed.wake()
	}
}

// slot takes a place in the cluster's lane. It returns false when ctx has ended or, for a follow, when there is news.
func (s *stream) slot(ctx context.Context, over bool, told <-chan struct{}) (free func(), ok bool) {
	places := s.t.lane.reads
	if !over {
		places = s.t.lane.follows
	} else {
		told = nil
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	case <-told:
	case <-ctx.Done():
	}
	return nil, false
}

// pause waits before the next try, longer each time, but not beyond news. It returns false when ctx has ended.
func (s *stream) pause(ctx context.Context, told <-chan struct{}, wait *time.Duration) bool {
	timer := time.NewTimer(*wait/2 + rand.N(*wait/2+1))
	defer timer.Stop()
	*wait = min(2**wait, s.t.k.o.RetryMax)
	select {
	case <-timer.C:
	case <-told:
	case <-ctx.Done():
		return false
	}
	return true
}

// buffers are for reads: a small one is held by each follow for as long as it lasts, a large one only while output comes
// faster than the small one takes it, for each read has a price.
var (
	buffers = sync.Pool{New: func() any { b := make([]byte, head+16<<10); return &b }}
	large   = sync.Pool{New: func() any { b := make([]byte, head+128<<10); return &b }}
)

// read takes one answer of the cluster into the spool.
func (s *stream) read(ctx context.Context, known news) answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.guard(cancel)
	defer s.unguard()
	fail := func(a answer, err error) answer {
		if a.err = err; errors.Is(context.Cause(ctx), errStalled) {
			a.err = errStalled
		}
		return a
	}

	m := &s.t.m // the fields read here never change
	body, err := s.t.k.o.Source.Logs(ctx, m.ClusterID, m.Namespace, s.key.pod, s.key.container, SourceOptions{
		Identity: s.t.identity, Follow: !known.over(), Previous: known.previous, Since: s.spool.pos.since(),
	})
	if err != nil {
		return fail(answer{}, err)
	}
	defer body.Close()
	s.setProblem("") // before any reader sees what comes, or the last trouble would be told again behind it
	small := buffers.Get().(*[]byte)
	defer buffers.Put(small)
	p := newParser(s.spool.pos)
	for full := false; ; {
		buf := small
		if full {
			buf = large.Get().(*[]byte)
		}
		n, ended, err := s.piece(body, p, *buf)
		if full {
			large.Put(buf)
		}
		full = n == len(*buf)-head
		switch {
		case err != nil:
			return answer{fresh: p.fresh, err: err}
		case errors.Is(ended, io.EOF):
			return answer{fresh: p.fresh, confirmed: p.confirmed()}
		case ended != nil:
			return fail(answer{fresh: p.fresh}, ended)
		}
	}
}

// piece takes one read of an answer into the spool. ended is how the answer ended, if it did; err is trouble with what came.
func (s *stream) piece(body io.Reader, p *parser, buf []byte) (n int, ended, err error) {
	n, ended = body.Read(buf[head:])
	s.kick()
	var out []byte
	switch {
	case n > 0:
		out = p.feed(buf, n)
		if errors.Is(ended, io.EOF) {
			ended = nil // it comes again
		}
	case errors.Is(ended, io.EOF):
		out = p.flush(buf)
	}
	if len(out) > 0 {
		if err := s.take(p, out); err != nil {
			return n, ended, err
		}
	}
	if p.fault != "" {
		return n, ended, &faultError{p.fault}
	}
	return n, ended, nil
}

// take adds output to the spool, within the quota, and lets readers see it.
func (s *stream) take(p *parser, out []byte) error {
	defer s.publish()
	if reason := s.missing(p); reason != "" {
		p.lost = false
		if err := s.loss(reason, max(p.pos.Start, 1)); err != nil {
			return &spoolError{err}
		}
	}
	used, quota := s.t.used.Add(int64(len(out))), s.t.k.o.Quota
	if over := used - quota; quota > 0 && over > 0 {
		out = out[:max(0, int64(len(out))-over)]
		s.t.used.Add(-over)
		if err := s.add(out, p); err != nil {
			return &spoolError{err}
		}
		if err := s.gap(GapQuota, fmt.Sprintf("the attempt's log quota of %d bytes is reached; later output is not kept", quota)); err != nil {
			return &spoolError{err}
		}
		return errQuota
	}
	if err := s.add(out, p); err != nil {
		return &spoolError{err}
	}
	return nil
}

// add adds output of the parser's last answer to the spool. Readers must know its times before they may read it.
func (s *stream) add(out []byte, p *parser) error {
	err := s.spool.append(out, p.pos, p.marks)
	if len(p.marks) > 0 {
		s.mu.Lock()
		s.times = s.spool.times
		s.mu.Unlock()
	}
	if s.first == 0 && p.pos.Start != 0 {
		s.mu.Lock()
		s.first = p.pos.Start
		s.mu.Unlock()
		s.t.shareSoon()
	}
	return err
}

// missing says what is missing before the output that the parser has just given.
func (s *stream) missing(p *parser) string {
	switch {
	case s.spool.size == 0 && s.first != 0 && p.pos.Start != s.first:
		return beginning
	case p.lost:
		return "lines may be missing here: the cluster no longer had what followed"
	}
	return ""
}

// gap marks a place where output is, or may be, missing.
func (s *stream) gap(code, reason string) error {
	return s.addGap(Gap{Code: code, Reason: reason})
}

// loss marks a place behind which another server's log may be another one.
func (s *stream) loss(reason string, origin int64) error {
	return s.addGap(Gap{Code: GapRotated, Reason: reason, Origin: origin})
}

func (s *stream) addGap(g Gap) error {
	if err := s.spool.adoptTail(); err != nil {
		return err
	}
	g.At = time.Now().UTC().Truncate(time.Microsecond)
	if err := s.spool.mark(g, s.spool.pos); err != nil {
		return err
	}
	s.mu.Lock()
	s.gaps, s.times = s.spool.gaps, s.spool.times
	s.mu.Unlock()
	return nil
}

// give ends the log incomplete, with a gap when code is not empty.
func (s *stream) give(code, reason string) {
	if code != "" {
		if err := s.gap(code, reason); err != nil {
			s.t.k.log.Error("a gap in a container's log could not be marked", "attempt", s.t.id, "pod", s.key.pod, "container", s.key.container, "gap", reason, "error", err)
			s.mu.Lock()
			s.gaps = append(s.gaps, Gap{Offset: s.spool.size, At: time.Now().UTC(), Code: code, Reason: reason})
			s.mu.Unlock()
		}
	}
	s.conclude(false)
}

func (s *stream) conclude(complete bool) {
	if err := s.spool.finish(complete); err != nil {
		// It is then found out again after a restart.
		s.t.k.log.Warn("the end of a container's log could not be noted", "attempt", s.t.id, "pod", s.key.pod, "container", s.key.container, "error", err)
	}
	s.mu.Lock()
	s.complete, s.problem = complete, ""
	s.mu.Unlock()
	if s.spool.data == nil {
		s.t.mu.Lock()
		s.t.saveSoon()
		s.t.mu.Unlock()
	}
	s.close()
}

// close says that the log has come to its end.
func (s *stream) close() {
	s.publish()
	close(s.done)
	s.grew.wake()
	s.t.changed.wake()
}

// guard lets a read that is silent for too long end; kick says that it was not.
func (s *stream) guard(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dog = time.AfterFunc(s.patience(), func() { cancel(errStalled) })
}

func (s *stream) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dog.Reset(s.patience())
}

func (s *stream) unguard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dog.Stop()
	s.dog = nil
}

func (s *stream) patience() time.Duration {
	if s.known.cut {
		return 0
	}
	if s.known.over() {
		return s.t.k.o.ReadStall
	}
	return s.t.k.o.Stall
}

// gone says whether the API server has no such pod, or the pod's node is no more.
func gone(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, `pods "`) || strings.Contains(text, `nodes "`)
}

// refused says whether the cluster answered, and that asking again is not likely to help.
func refused(err error) bool {
	var fault *faultError
	if errors.As(err, &fault) || errors.Is(err, errStranger) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// sentence is an error's text for people, without line ends and not too long.
func sentence(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
