package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

// Bounds of one request.
const (
	// callTimeout bounds a call whose caller set no deadline.
	callTimeout = 60 * time.Second
	// openTimeout bounds the wait for the headers of a watch. Log follows have no such bound: the headers of a silent
	// container come with its first line.
	openTimeout = 30 * time.Second
	// maxAnswer bounds the answer to a call that is no stream, in bytes.
	maxAnswer = 256 << 20
)

var (
	// ErrReplaced is returned by calls on a client that was replaced a while ago.
	ErrReplaced = errors.New("the cluster's connection was replaced")

	errRedirect = errors.New("the address redirects to another one, which the Kubernetes API does not")
	errTooLarge = errors.New("the answer is larger than any that is expected")
)

// noAnswer is the error of a stream whose headers did not come in time.
type noAnswer struct{}

func (noAnswer) Error() string   { return fmt.Sprintf("no answer within %s", openTimeout) }
func (noAnswer) Timeout() bool   { return true }
func (noAnswer) Temporary() bool { return true }

// RoundTrip sends one request with the current credentials. It asks for new ones when they are about to end and, once,
// when the cluster does not know them.
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	if l.dead.Load() {
		return nil, ErrReplaced
	}
	verb, resource := kindOf(req)
	w := l.current.Load()
	if l.renew != nil && !w.creds.renewAt.IsZero() {
		if now := time.Now(); now.After(w.creds.renewAt) {
			l.renew(req.Context(), w.creds, now.After(w.creds.expiresAt))
			w = l.current.Load()
		}
	}
	resp, err := l.send(w, req, verb, resource)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || l.renew == nil || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	if !l.renew(req.Context(), w.creds, true) {
		return resp, nil
	}
	again := req.Clone(req.Context())
	if req.Body != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return resp, nil // the 401 is the answer then
		}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	return l.send(l.current.Load(), again, verb, resource)
}

// send is one request on one wire, bounded and observed.
func (l *link) send(w *wire, req *http.Request, verb, resource string) (*http.Response, error) {
	s := &stream{link: l, watch: verb == "watch", long: verb == "watch" || verb == "log"}
	ctx, cancel := context.WithCancelCause(req.Context())
	s.cancel = cancel
	var timer *time.Timer
	if s.watch {
		timer = time.AfterFunc(openTimeout, func() { cancel(noAnswer{}) })
	} else if _, bounded := ctx.Deadline(); !bounded && !s.long {
		timer = time.AfterFunc(callTimeout, func() { s.late.Store(true); cancel(context.DeadlineExceeded) })
	}
	out := req.Clone(ctx)
	if w.creds.token != "" && out.Header.Get("Authorization") == "" {
		out.Header.Set("Authorization", "Bearer "+w.creds.token)
	}

	start := time.Now()
	resp, err := w.rt.RoundTrip(out)
	if err == nil && resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		err = errRedirect
	}
	if err != nil && ctx.Err() != nil && req.Context().Err() == nil {
		err = context.Cause(ctx) // ours, not the caller's
	}
	l.noteAnswer(err)
	l.observe(req.Context(), verb, resource, resp, err, time.Since(start))
	if err != nil {
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
		return nil, err
	}
	if s.watch {
		timer.Stop()
		timer = nil
	}
	s.body, s.timer = resp.Body, timer
	if s.long {
		l.track(s)
	} else {
		s.left = maxAnswer
	}
	resp.Body = s
	return resp, nil
}

func (l *link) observe(ctx context.Context, verb, resource string, resp *http.Response, err error, took time.Duration) {
	if l.observer == nil {
		return
	}
	c := Call{ClusterID: l.clusterID, Verb: verb, Resource: resource, Class: Classify(err), Took: took, RequestID: requestid.From(ctx)}
	if err == nil {
		c.Code = resp.StatusCode
		c.Class = classOfCode(c.Code)
	}
	l.observer.Observe(c)
}

// track remembers a long answer, so that it can be cut. On a closed link it is cut at once.
func (l *link) track(s *stream) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.streams[s] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		s.cut()
	}
}

// stream is the body of an answer. It releases the request's context when it is closed and, for long answers, can be
// cut from outside.
type stream struct {
	link   *link
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	watch  bool
	long   bool
	left   int64 // what may still be read of an answer that is no stream
	wasCut atomic.Bool
	late   atomic.Bool // the deadline that stands for a missing one has passed
	once   sync.Once
}

func (s *stream) cut() {
	s.wasCut.Store(true)
	s.cancel(ErrReplaced)
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if !s.long {
		if s.left -= int64(n); s.left < 0 {
			return 0, errTooLarge
		}
		if err != nil && err != io.EOF && s.late.Load() {
			err = context.DeadlineExceeded
		}
		return n, err
	}
	if err != nil && s.wasCut.Load() {
		// A watch that ends is simply opened again where it was. A log that ends would be taken for whole.
		if err = io.ErrUnexpectedEOF; s.watch {
			err = io.EOF
		}
	}
	return n, err
}

func (s *stream) Close() error {
	err := s.body.Close()
	s.once.Do(func() {
		if s.timer != nil {
			s.timer.Stop()
		}
		s.cancel(nil)
		if s.long {
			s.link.mu.Lock()
			delete(s.link.streams, s)
			s.link.mu.Unlock()
		}
	})
	return err
}

// classOfCode is the class of an answer by its status alone.
func classOfCode(code int) Class {
	switch {
	case code < 300:
		return OK
	case code == http.StatusUnauthorized:
		return Credentials
	case code == http.StatusForbidden:
		return Permissions
	case code == http.StatusNotFound:
		return NotFound
	case code == http.StatusConflict:
		return Conflict
	case code == http.StatusGone:
		return Gone
	case code == http.StatusTooManyRequests:
		return Throttled
	case code >= 500:
		return Server
	default:
		return Invalid
	}
}
