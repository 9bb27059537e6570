package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
)

// Target is a plugin to run the suite against: [InMemory], [Binary] or [Services].
type Target interface {
	// open starts a fresh plugin.
	open(ctx context.Context) (*session, error)
}

// session is one started plugin.
type session struct {
	plugin   pluginv1.PluginServiceClient
	provider providerv1.ProviderServiceClient
	selector selectorv1.SelectorServiceClient
	path     string        // of the binary; empty in memory
	running  func() int    // calls in flight; nil when that cannot be seen
	log      func() string // what the plugin has written to stderr so far
	close    func()
}

func newSession(conn grpc.ClientConnInterface) *session {
	return &session{
		plugin:   pluginv1.NewPluginServiceClient(conn),
		provider: providerv1.NewProviderServiceClient(conn),
		selector: selectorv1.NewSelectorServiceClient(conn),
		log:      func() string { return "" },
	}
}

// InMemory is an implementation as sdk.Serve takes it. The function makes a fresh one for each start.
func InMemory(info sdk.Info, implementation func() any) Target {
	return inMemory{info: info, implementation: implementation}
}

type inMemory struct {
	info           sdk.Info
	implementation func() any
}

func (t inMemory) open(context.Context) (*session, error) {
	p, err := sdk.New(t.info, t.implementation())
	if err != nil {
		return nil, err
	}
	server := p.NewServer()
	p.Register(server)
	conn, closer, err := plugintest.Conn(server)
	if err != nil {
		return nil, err
	}
	s := newSession(conn)
	s.running = p.Running
	s.close = closer
	return s, nil
}

// Services is a plugin that registers the generated services itself, without sdk.Serve. The function is called at each
// start.
func Services(register func(grpc.ServiceRegistrar)) Target { return services(register) }

type services func(grpc.ServiceRegistrar)

func (t services) open(context.Context) (*session, error) {
	var running atomic.Int64
	server := grpc.NewServer(append(handshake.ServerOptions(),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			running.Add(1)
			defer running.Add(-1)
			return next(ctx, req)
		}))...)
	t(server)
	conn, closer, err := plugintest.Conn(server)
	if err != nil {
		return nil, err
	}
	s := newSession(conn)
	s.running = func() int { return int(running.Load()) }
	s.close = closer
	return s, nil
}

// Binary is a built plugin, started as a host starts it: AutoMTLS, an empty environment but for what go-plugin sets.
func Binary(path string) Target { return binary(path) }

type binary string

func (t binary) open(ctx context.Context) (*session, error) {
	path, err := filepath.Abs(string(t))
	if err != nil {
		return nil, fmt.Errorf("path of the plugin: %w", err)
	}
	client, conn, stderr, err := launch(exec.Command(path))
	if err != nil {
		return nil, err
	}
	s := newSession(conn)
	s.path = path
	s.log = stderr.String
	s.close = client.Kill
	return s, nil
}

// launch starts a command as a plugin.
func launch(cmd *exec.Cmd) (*plugin.Client, *grpc.ClientConn, *syncBuffer, error) {
	cmd.Env = []string{handshake.LogLevelEnv + "=trace"}
	stderr := &syncBuffer{}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: handshake.ClientSets(),
		Cmd:              cmd,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		Logger:           hclog.NewNullLogger(),
		Stderr:           stderr,
		GRPCDialOptions:  handshake.CallOptions(),
	})
	protocol, err := client.Client()
	if err != nil {
		client.Kill()
		return nil, nil, nil, fmt.Errorf("the plugin does not start: %w; its stderr: %q", err, stderr.String())
	}
	raw, err := protocol.Dispense(handshake.SetName)
	if err != nil {
		client.Kill()
		return nil, nil, nil, fmt.Errorf("the plugin's connection: %w", err)
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		client.Kill()
		return nil, nil, nil, fmt.Errorf("the plugin's connection is a %T", raw)
	}
	return client, conn, stderr, nil
}

// syncBuffer collects stderr; it keeps the first megabytes and drops the rest.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write never fails.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := 4<<20 - b.b.Len(); room > 0 {
		b.b.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// String returns what was written.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
