package faultproxy

import (
	"net"
	"sync"
)

// gate holds every connection of the proxy, so that all of them can be frozen, cut or refused at once.
type gate struct {
	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	open     chan struct{} // closed while nothing is frozen
}

func newGate() *gate {
	g := &gate{conns: map[*conn]struct{}{}, open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) use(l net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener = l
}

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default: // frozen already
	}
}

func (g *gate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (g *gate) refuse() {
	g.mu.Lock()
	l := g.listener
	g.mu.Unlock()
	_ = l.Close()
	g.cut()
}

func (g *gate) cut() {
	g.mu.Lock()
	all := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

func (g *gate) wrap(l net.Listener) net.Listener { return &listener{Listener: l, gate: g} }

type listener struct {
	net.Listener
	gate *gate
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, gate: l.gate, closed: make(chan struct{})}
	l.gate.mu.Lock()
	l.gate.conns[c] = struct{}{}
	l.gate.mu.Unlock()
	return c, nil
}

// conn is a connection that stands still while the gate is shut.
type conn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

func (c *conn) pass() error {
	c.gate.mu.Lock()
	open := c.gate.open
	c.gate.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	// What arrived while the gate was shut is kept until it opens.
	if wait := c.pass(); wait != nil {
		return 0, wait
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
