package kube

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// Times of a link.
const (
	// drainGrace is how long calls on a replaced client may go on.
	drainGrace = 30 * time.Second
	// reopenSpread is over how long streams are spread when all of them are to be opened again, so that many of them do
	// not come at once.
	reopenSpread = 3 * time.Second
	// pingIdle and pingTimeout bound how long a dead HTTP/2 connection goes unnoticed.
	pingIdle    = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// link is the transport of one client: it owns every connection to its endpoint. Credentials are swapped inside it.
type link struct {
	clusterID string
	endpoint  endpoint
	allow     []netip.Prefix
	proxyEnv  bool
	observer  Observer
	// renew asks for new credentials; nil when the connection renews them by itself. wait says that the caller cannot go
	// on without. It reports whether the link's credentials are others than used.
	renew func(ctx context.Context, used *credentials, wait bool) bool

	current atomic.Pointer[wire]
	done    chan struct{}
	dead    atomic.Bool // after the drain

	failing atomic.Bool           // the last request got no answer
	stale   atomic.Pointer[error] // why the row, as it is now, gives no connection; nil: this is the one it gives

	mu      sync.Mutex
	closed  bool
	back    chan struct{} // closed and renewed when an answer comes after failures
	streams map[*stream]struct{}
	wires   map[*wire]struct{} // all that may hold connections
}

// wire is one set of credentials with the transport that carries them. A client certificate belongs to a connection, so
// a new one needs connections of its own; tokens share them.
type wire struct {
	creds *credentials
	base  *http.Transport
	rt    http.RoundTripper // base, or what wraps it for the backend's environment
	conns *connrotation.ConnectionTracker
}

// newLink makes the transport for a target. Nothing is dialled.
func newLink(clusterID string, t target, allow []netip.Prefix, proxyEnv bool, o Observer) (*link, error) {
	l := &link{
		clusterID: clusterID, endpoint: t.endpoint, allow: allow, proxyEnv: proxyEnv, observer: o,
		done: make(chan struct{}), back: make(chan struct{}), streams: map[*stream]struct{}{}, wires: map[*wire]struct{}{},
	}
	var (
		w   *wire
		err error
	)
	if t.backend != nil {
		w, err = l.backendWire(t)
	} else {
		w, err = l.newWire(t.creds)
	}
	if err != nil {
		return nil, err
	}
	l.wires[w] = struct{}{}
	l.current.Store(w)
	return l, nil
}

func (l *link) newWire(creds *credentials) (*wire, error) {
	cfg, err := l.endpoint.tlsConfig(creds.cert)
	if err != nil {
		return nil, err
	}
	proxy, err := l.endpoint.proxyFunc(l.proxyEnv)
	if err != nil {
		return nil, err
	}
	conns, dial := newDialer(l.allow)
	base := newTransport()
	base.TLSClientConfig, base.Proxy, base.DialContext = cfg, checkProxied(proxy, l.allow), dial
	return &wire{creds: creds, base: base, rt: base, conns: conns}, nil
}

// backendWire uses client-go's own handling of credentials: token files that are read again and exec plugins.
func (l *link) backendWire(t target) (*wire, error) {
	conns, dial := newDialer(l.allow)
	cfg := *t.backend
	cfg.Dial = dial
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	base := newTransport()
	base.TLSClientConfig, base.Proxy, base.DialContext = tlsConfig, tc.Proxy, tc.DialHolder.Dial
	if base.Proxy == nil && l.proxyEnv {
		base.Proxy = http.ProxyFromEnvironment
	}
	base.Proxy = checkProxied(base.Proxy, l.allow)
	rt, err := transport.HTTPWrappersForConfig(tc, base)
	if err != nil {
		return nil, err
	}
	return &wire{creds: t.creds, base: base, rt: rt, conns: conns}, nil
}

// noteAnswer keeps track of whether the cluster answers, and wakes those who wait for it to do so again.
func (l *link) noteAnswer(err error) {
	if err != nil {
		if Classify(err) != Canceled {
			l.failing.Store(true)
		}
		return
	}
	if !l.failing.Load() || !l.failing.CompareAndSwap(true, false) {
		return
	}
	l.mu.Lock()
	close(l.back)
	l.back = make(chan struct{})
	l.mu.Unlock()
}

// recovered is closed when the next answer comes after a request without one.
func (l *link) recovered() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.back
}

func newTransport() *http.Transport {
	return &http.Transport{
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		// The bound of what comes before the body, which is bounded elsewhere.
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingIdle, PingTimeout: pingTimeout},
	}
}

// swap puts new credentials in place. With reopen, and when the connections change with the certificate, the open streams
// are opened again, spread over a moment: their owners see the stream end as it does now and then anyway.
func (l *link) swap(creds *credentials, reopen bool) error {
	old := l.current.Load()
	next := &wire{creds: creds, base: old.base, rt: old.rt, conns: old.conns}
	if creds.certSum != old.creds.certSum {
		reopen = true
		var err error
		if next, err = l.newWire(creds); err != nil {
			return err
		}
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.current.Store(next)
	l.wires[next] = struct{}{}
	if next.base == old.base {
		delete(l.wires, old) // else its connections drain, and a close must find them
	}
	var streams []*stream
	if reopen {
		for s := range l.streams {
			streams = append(streams, s)
		}
	}
	l.mu.Unlock()
	for _, s := range streams {
		time.AfterFunc(rand.N(reopenSpread), s.cut)
	}
	if next.base != old.base {
		time.AfterFunc(reopenSpread+time.Second, old.base.CloseIdleConnections)
		time.AfterFunc(drainGrace, func() {
			old.conns.CloseAll()
			l.mu.Lock()
			delete(l.wires, old)
			l.mu.Unlock()
		})
	}
	return nil
}

// close ends the link. Streams end at once; calls may go on for the grace, after which every connection is closed.
func (l *link) close(grace time.Duration) {
	l.mu.Lock()
	if l.closed && grace > 0 {
		l.mu.Unlock()
		return
	}
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	streams := l.streams
	l.streams = map[*stream]struct{}{}
	l.mu.Unlock()
	for s := range streams {
		s.cut()
	}
	if grace == 0 {
		l.kill()
		return
	}
	time.AfterFunc(time.Second, l.closeIdle) // most are: what is cut takes a moment
	time.AfterFunc(grace, l.kill)
}

func (l *link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *link) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.wires {
		w.base.CloseIdleConnections()
	}
}

func (l *link) kill() {
	l.dead.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.wires {
		w.base.CloseIdleConnections()
		w.conns.CloseAll()
	}
}
