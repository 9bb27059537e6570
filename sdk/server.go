package sdk

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

// contract is the prefix of the services to which the interceptor applies; go-plugin's own pass untouched.
const contract = "/nagelfluh."

// NewServer returns a gRPC server with the message limits and with the interceptor that contains panics. The services
// are not registered yet; see [Plugin.Register].
func (p *Plugin) NewServer(opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(append(opts, handshake.ServerOptions()...), grpc.ChainUnaryInterceptor(p.intercept))...)
}

// intercept runs one call of the contract: counted, and with its panic turned into an error of that call alone.
func (p *Plugin) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !strings.HasPrefix(info.FullMethod, contract) {
		return handler(ctx, req)
	}
	if !p.calls.begin() {
		return nil, status.Error(codes.Unavailable, "the plugin is stopping")
	}
	defer p.calls.end()
	defer func() {
		if cause := recover(); cause != nil {
			method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
			text := short(fmt.Sprint(cause))
			hclog.Default().Error("panic in "+method, "panic", text, "stack", string(debug.Stack()))
			resp, err = nil, status.Errorf(codes.Internal, "the plugin panicked in %s: %s", method, text)
		}
	}()
	return handler(ctx, req)
}

// short keeps a panic's text to one line of reasonable length.
func short(text string) string {
	const limit = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// calls counts what is in flight, so that a plugin can end without cutting an answer off.
type calls struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when closed and nothing runs
	first   chan struct{} // closed at the first call
	once    sync.Once
}

func newCalls() *calls {
	return &calls{idle: make(chan struct{}), first: make(chan struct{})}
}

// begin counts a call in, unless the plugin is stopping.
func (c *calls) begin() bool {
	c.once.Do(func() { close(c.first) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running++
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.closed && c.running == 0 {
		close(c.idle)
	}
}

// drain refuses new calls and waits for those in flight, at most for the grace.
func (c *calls) drain(grace time.Duration) {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	if !already && c.running == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.idle:
	case <-timer.C:
	}
}

// Running returns how many calls of the contract are in flight. Test harnesses use it to see that calls end with their
// deadline.
func (p *Plugin) Running() int {
	p.calls.mu.Lock()
	defer p.calls.mu.Unlock()
	return p.calls.running
}
