// Package replica lets every one of several servers answer what only the leader knows or may change: it passes such
// requests on to the leader, with the caller's own credentials, so that the leader decides what the caller may do.
package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
)

// ErrNoLeader: no server leads now, as far as this one knows, or the one that does cannot be reached.
var ErrNoLeader = errors.New("no server leads now")

// HeaderForwarded marks a request that a server passed on, with that server's id. It is not passed on again: who leads
// may change on its way.
const HeaderForwarded = "Nagelfluh-Forwarded"

// Leaders tells who leads. *lease.Elector fulfils it.
type Leaders interface {
	// View returns who leads, and a channel that closes when that changes.
	View() (lease.View, <-chan struct{})
}

// Alone is for a server that has the database to itself.
type Alone struct{}

// View implements Leaders.
func (Alone) View() (lease.View, <-chan struct{}) { return lease.View{Self: true}, nil }

// Await waits, at most for a limit, until somebody leads.
func Await(ctx context.Context, l Leaders, limit time.Duration) (lease.View, error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		v, changed := l.View()
		if v.Self || v.Address != "" {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-end.C:
			return v, ErrNoLeader
		case <-changed:
		}
	}
}

// NewTransport returns the way to other servers. They are near: whoever does not answer at once is away or overloaded.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		TLSHandshakeTimeout:   3 * time.Second,
		ResponseHeaderTimeout: time.Minute, // a connection test takes its time
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       30 * time.Second,
	}
}

// Forward passes a request on and its answer back. The error is one of the other server's not being reached: nothing has
// been answered then.
func Forward(w http.ResponseWriter, r *http.Request, transport http.RoundTripper, address, self string) (err error) {
	to, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("%w: its address: %w", ErrNoLeader, err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host // links and cookies are the user's
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			p.SetXForwarded()
			p.Out.Header.Set(HeaderForwarded, self)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failed error) {
			err = fmt.Errorf("%w: %w", ErrNoLeader, failed)
		},
	}
	proxy.ServeHTTP(w, r)
	return err
}
