// Package faultproxy stands in front of a real API server and makes it misbehave on demand: refuse, freeze, delay, answer
// with a status of the test's choice, lose answers, cut streams.
//
//	p, err := faultproxy.New(kubeconfig)
//	defer p.Close()
//	undo := p.Add(faultproxy.LoseAnswer(), faultproxy.On("POST", "/jobs$"), faultproxy.Times(1))
//
// Clients use [Proxy.Kubeconfig], which has the proxy's own address and certificate authority and the target's
// credentials. The proxy speaks HTTP/1.1 and HTTP/2. Everything is safe for concurrent use.
package faultproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is a running proxy.
type Proxy struct {
	target    *url.URL
	transport *http.Transport
	server    *http.Server
	address   string
	gate      *gate
	ca        []byte
	user      *clientcmdapi.AuthInfo

	mu     sync.Mutex
	rules  []*rule
	seen   []Request
	open   map[*http.Request]Request // being served
	serves sync.WaitGroup
}

// Request is one request that reached the proxy.
type Request struct {
	At            time.Time
	Method        string
	Path          string // with the query
	Authorization string
}

// New starts a proxy on loopback in front of the current cluster of a kubeconfig.
func New(kubeconfig []byte) (*Proxy, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the target's kubeconfig: %w", err)
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the target's kubeconfig: %w", err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("the target's address: %w", err)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("the target's TLS settings: %w", err)
	}
	current, ok := raw.Contexts[raw.CurrentContext]
	if !ok {
		return nil, errors.New("the target's kubeconfig has no current context")
	}
	cert, ca, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target, address: listener.Addr().String(), ca: ca, user: raw.AuthInfos[current.AuthInfo],
		transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 64},
		gate:      newGate(), open: map[*http.Request]Request{},
	}
	p.server = &http.Server{
		Handler:           p,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}},
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are the purpose
		ReadHeaderTimeout: time.Minute,
	}
	p.serve(listener)
	return p, nil
}

func (p *Proxy) serve(l net.Listener) {
	p.gate.use(l)
	p.serves.Go(func() { _ = p.server.ServeTLS(p.gate.wrap(l), "", "") })
}

// Kubeconfig leads to the proxy: its address and certificate authority with the target's user.
func (p *Proxy) Kubeconfig() []byte {
	c := clientcmdapi.NewConfig()
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: "https://" + p.address, CertificateAuthorityData: p.ca}
	c.AuthInfos["user"] = p.user
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", AuthInfo: "user"}
	c.CurrentContext = "proxy"
	out, err := clientcmd.Write(*c)
	if err != nil {
		panic(fmt.Sprintf("a kubeconfig of our own cannot be written: %v", err))
	}
	return out
}

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.gate.thaw()
	_ = p.server.Close()
	p.gate.cut()
	p.serves.Wait()
	p.transport.CloseIdleConnections()
}

// Freeze makes the proxy accept connections and never answer, on open connections and streams too, until Thaw. The API
// server behind it goes on.
func (p *Proxy) Freeze() { p.gate.freeze() }

// Thaw ends Freeze; what was held up goes on.
func (p *Proxy) Thaw() { p.gate.thaw() }

// Refuse closes every connection and refuses new ones, until Restore.
func (p *Proxy) Refuse() { p.gate.refuse() }

// Restore ends Refuse, on the same address.
func (p *Proxy) Restore() error {
	var err error
	for range 50 {
		// Another process may hold the port for a moment as the near end of a connection.
		var l net.Listener
		if l, err = net.Listen("tcp", p.address); err == nil {
			p.serve(l)
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("listen on %s again: %w", p.address, err)
}

// Cut breaks every open connection, streams included. New ones work.
func (p *Proxy) Cut() { p.gate.cut() }

// Requests returns what reached the proxy, in order.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.seen...)
}

// Open returns the requests that are being served now, streams among them, in no order.
func (p *Proxy) Open() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.open))
}

// Count counts the requests of a method (empty: any) whose path and query match.
func (p *Proxy) Count(method, path string) int {
	re := regexp.MustCompile(path)
	n := 0
	for _, r := range p.Requests() {
		if (method == "" || r.Method == method) && re.MatchString(r.Path) {
			n++
		}
	}
	return n
}

// ServeHTTP forwards a request, or does what a rule says.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	seen := Request{At: time.Now(), Method: r.Method, Path: r.URL.RequestURI(), Authorization: r.Header.Get("Authorization")}
	p.seen, p.open[r] = append(p.seen, seen), seen
	var fault Fault
	for _, rule := range p.rules {
		if rule.takes(r) {
			fault = rule.fault
			break
		}
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, r)
	}()
	if fault == nil {
		p.forward(w, r, nil)
		return
	}
	fault(w, r, func(w http.ResponseWriter, wrap func(io.Writer) io.Writer) { p.forward(w, r, wrap) })
}

// forward passes a request on and its answer back as it comes; wrap may stand between the two.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, wrap func(io.Writer) io.Writer) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.Host, out.RequestURI = "", ""
	out.Header.Del("Connection")
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // what the target does not answer, the proxy does not answer either
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		if name != "Connection" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	var to io.Writer = flusher{w, http.NewResponseController(w)}
	_ = http.NewResponseController(w).Flush() // a watch may send nothing for long
	if wrap != nil {
		to = wrap(to)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flusher sends each write at once.
type flusher struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f flusher) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}
