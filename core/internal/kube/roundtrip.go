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
	verb, resource := kindOf(req)
	// One deadline for all of it: the wait for credentials and the second request too.
	end := time.Now().Add(callTimeout)
	waiting := req.Context()
	if _, bounded := waiting.Deadline(); !bounded {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(waiting, end)
		defer cancel()
	}
	for asked := false; ; {
		if l.dead.Load() {
			return nil, ErrReplaced
		}
		if c := l.current.Load().creds; l.renew != nil && !c.renewAt.IsZero() {
			if now := time.Now(); now.After(c.renewAt) {
				l.renew(waiting, c, now.After(c.expiresAt))
			}
		}
		resp, used, err := l.send(req, verb, resource, end)
		if errors.Is(err, ErrReplaced) && req.Context().Err() == nil && !l.isClosed() {
			continue // a stream that had not opened yet when the credentials changed
		}
		if err != nil || resp.StatusCode != http.StatusUnauthorized || asked || l.renew == nil || req.Body != nil && req.GetBody == nil {
			return resp, err
		}
		if !l.renew(waiting, used, true) {
			return resp, nil
		}
		if req.Body != nil {
			body, err := req.GetBody()
			if err != nil {
				return resp, nil // the 401 is the answer then
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
		_ = resp.Body.Close()
		asked = true
	}
}

// send is one request on the current wire, bounded and observed; end is for those whose caller set no deadline. It also
// returns the credentials that it used.
func (l *link) send(req *http.Request, verb, resource string, end time.Time) (*http.Response, *credentials, error) {
	s := &stream{link: l, watch: verb == "watch", long: verb == "watch" || verb == "log"}
	ctx, cancel := context.WithCancelCause(req.Context())
	s.cancel = cancel
	w := l.current.Load()
	if s.long {
		if w = l.track(s); w == nil {
			cancel(nil)
			return nil, nil, ErrReplaced
		}
	}
	var timer *time.Timer
	if s.watch {
		timer = time.AfterFunc(openTimeout, func() { cancel(noAnswer{}) })
	} else if _, bounded := ctx.Deadline(); !bounded && !s.long {
		timer = time.AfterFunc(time.Until(end), func() { s.late.Store(true); cancel(context.DeadlineExceeded) })
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
	if !errors.Is(err, ErrReplaced) {
		l.noteAnswer(err)
		l.observe(req.Context(), verb, resource, resp, err, time.Since(start))
	}
	if err != nil {
		if timer != nil {
			timer.Stop()
		}
		l.untrack(s)
		cancel(nil)
		return nil, w.creds, err
	}
	if s.watch {
		timer.Stop()
		timer = nil
	}
	if resp.StatusCode >= 400 && len(w.creds.token) >= shortestSecret {
		resp.Body = &masked{ReadCloser: resp.Body, token: w.creds.token}
	}
	s.body, s.timer, s.left = resp.Body, timer, maxAnswer
	resp.Body = s
	return resp, w.creds, nil
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

// track remembers a long answer before it is asked for, so that it can be cut, and gives the wire for it: a change of the
// credentials finds it or is found by it. nil: the link is closed.
func (l *link) track(s *stream) *wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.streams[s] = struct{}{}
	return l.current.Load()
}

func (l *link) untrack(s *stream) {
	if s.long {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.streams, s)
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
		s.link.untrack(s)
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
