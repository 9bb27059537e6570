package faultproxy

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"time"
)

// Fault is what happens to a request instead of just passing it on.
type Fault func(w http.ResponseWriter, r *http.Request, forward Forward)

// Forward passes the request on and writes the answer to w; wrap, when not nil, stands between the two bodies.
type Forward func(w http.ResponseWriter, wrap func(io.Writer) io.Writer)

// Option says which requests a fault is for.
type Option func(*rule)

type rule struct {
	fault Fault
	match func(*http.Request) bool
	left  int // -1: without end
}

// takes says whether the rule is for the request, and counts it.
func (r *rule) takes(req *http.Request) bool {
	if r.left == 0 || !r.match(req) {
		return false
	}
	if r.left > 0 {
		r.left--
	}
	return true
}

// On limits a fault to a method (empty: any) and a regular expression of path and query.
func On(method, path string) Option {
	re := regexp.MustCompile(path)
	return When(func(r *http.Request) bool {
		return (method == "" || r.Method == method) && re.MatchString(r.URL.RequestURI())
	})
}

// When limits a fault to the requests for which match says yes; match is called with a lock held and must be quick.
func When(match func(*http.Request) bool) Option { return func(r *rule) { r.match = match } }

// Times ends a fault after n requests.
func Times(n int) Option { return func(r *rule) { r.left = n } }

// Add puts a fault into force until undo is called. The first fault that was added and takes a request is used.
func (p *Proxy) Add(f Fault, options ...Option) (undo func()) {
	added := &rule{fault: f, left: -1, match: func(*http.Request) bool { return true }}
	for _, o := range options {
		o(added)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, added)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, r := range p.rules {
			if r == added {
				p.rules = append(p.rules[:i:i], p.rules[i+1:]...)
				return
			}
		}
	}
}

// Delay passes requests on after a while.
func Delay(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward Forward) {
		select {
		case <-time.After(d):
			forward(w, nil)
		case <-r.Context().Done():
		}
	}
}

// Hang answers nothing until the caller gives up. The request does not reach the API server.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ Forward) { <-r.Context().Done() }
}

// Answer answers in the API server's place, which never sees the request. header may be nil.
func Answer(status int, header http.Header, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ Forward) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Gone answers as the API server does when a resourceVersion is too old.
func Gone() Fault {
	return Answer(http.StatusGone, http.Header{"Content-Type": {"application/json"}},
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}`)
}

// Drop breaks the connection before the API server sees the request.
func Drop() Fault {
	return func(http.ResponseWriter, *http.Request, Forward) { panic(http.ErrAbortHandler) }
}

// LoseAnswer passes the request on, waits for the answer and breaks the connection instead of giving it: the API server
// has done what was asked.
func LoseAnswer() Fault {
	return func(_ http.ResponseWriter, _ *http.Request, forward Forward) {
		forward(&nowhere{header: http.Header{}}, nil)
		panic(http.ErrAbortHandler)
	}
}

// nowhere is an answer that nobody reads.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Flush()                      {}

// CutAfter passes on so many bytes of the answer's body and breaks the connection then.
func CutAfter(n int64) Fault {
	return func(w http.ResponseWriter, _ *http.Request, forward Forward) {
		forward(w, func(w io.Writer) io.Writer { return &cutter{w: w, left: n} })
	}
}

// Throttle passes the answer's body on at so many bytes a second.
func Throttle(perSecond int) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward Forward) {
		forward(w, func(w io.Writer) io.Writer { return &throttle{w: w, done: r.Context().Done(), rate: perSecond} })
	}
}

var errCut = errors.New("cut")

type cutter struct {
	w    io.Writer
	left int64
}

func (c *cutter) Write(b []byte) (int, error) {
	if int64(len(b)) < c.left {
		c.left -= int64(len(b))
		return c.w.Write(b)
	}
	n, _ := c.w.Write(b[:c.left])
	return n, errCut
}

type throttle struct {
	w    io.Writer
	done <-chan struct{}
	rate int
}

func (t *throttle) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		part := min(len(b), max(t.rate/10, 1))
		n, err := t.w.Write(b[:part])
		written += n
		if err != nil {
			return written, err
		}
		b = b[part:]
		select {
		case <-time.After(time.Duration(part) * time.Second / time.Duration(t.rate)):
		case <-t.done:
			return written, errCut
		}
	}
	return written, nil
}
