package sdk

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

const (
	// drainGrace bounds how long a plugin that was asked to stop waits for the calls in flight.
	drainGrace = 5 * time.Second
	// flushGrace is how long answers have to leave after the last call has returned.
	flushGrace = 300 * time.Millisecond
	// exitGrace bounds how long the rest of the way out may take.
	exitGrace = 3 * time.Second
	// lonely is how long a plugin waits for its host's first call. Longer than any host needs, short enough that a plugin
	// whose host died between the start and the handshake does not stay.
	lonely = time.Minute
	// gcPercent lets the heap grow by 16 MB before it is collected, if it is as small as most plugins'.
	gcPercent = 400
	// parentPoll is how often the parent process is looked at.
	parentPoll = time.Second
)

// Serve runs the plugin until its host ends it; it is the only line that an author's main needs. See [New] for what the
// implementation may be. A mistake in it is printed to stderr, where the host shows it, and the process exits with 1; so
// does a binary that was started by hand.
func Serve(info Info, impl any) {
	if os.Getenv(handshake.CookieKey) != handshake.CookieValue {
		fmt.Fprintf(os.Stderr, "%s is the Nagelfluh plugin %q, version %s. It is not run by hand: put it into the server's "+
			"plugin directory and it is started there.\n", filepath.Base(os.Args[0]), info.Name, info.Version)
		os.Exit(1)
	}
	stdio, err := claimStdio()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot set up stdio: %v\n", err)
		os.Exit(1)
	}
	logger := hclog.New(&hclog.LoggerOptions{
		Level:      hclog.LevelFromString(os.Getenv(handshake.LogLevelEnv)),
		Output:     stdio.stderr,
		JSONFormat: true,
	})
	hclog.SetDefault(logger)
	log.SetFlags(0)
	log.SetOutput(logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true}))

	p, err := New(info, impl)
	if err != nil {
		logger.Error(err.Error())
		os.Exit(1)
	}
	// A plugin holds next to nothing, so a heap that may grow to a few megabytes would be collected about every hundredth
	// call, and a placement waits for all selectors in turn.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s := &server{plugin: p, logger: logger}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go s.watch(ctx)

	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{handshake.ProtocolVersion: {handshake.SetName: &served{plugin: p}}},
		Logger:           logger.Named("go-plugin"),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			// go-plugin points os.Stdout and os.Stderr at pipes to the host that nobody has to read. The first call of
			// any service comes after that, and before any call of the author's code.
			opts = append(opts,
				grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
					stdio.restore()
					return next(ctx, req)
				}),
			)
			g := p.NewServer(opts...)
			s.set(g)
			return g
		},
	})
	stdio.finish()
}

// server ends the process for the reasons that go-plugin does not know.
type server struct {
	plugin *Plugin
	logger hclog.Logger

	mu   sync.Mutex
	grpc *grpc.Server
}

func (s *server) set(g *grpc.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grpc = g
}

// watch ends the plugin on SIGTERM, when the host dies, and when no host ever calls. SIGINT is left to go-plugin, which
// ignores it: a Ctrl-C in the host's terminal reaches its plugins too, and the host still needs them to drain.
func (s *server) watch(ctx context.Context) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	// With the host goes the reader of stderr. A log line must not kill the plugin before it has removed its socket; with
	// the signal caught the write just fails.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	parent := os.Getppid()
	tick := time.NewTicker(parentPoll)
	defer tick.Stop()
	alone := time.NewTimer(lonely)
	defer alone.Stop()
	first := s.plugin.calls.first
	for {
		select {
		case <-ctx.Done():
			return
		case <-first:
			alone.Stop()
			first = nil
		case <-alone.C:
			s.logger.Warn("no host has called; ending")
			s.end(0)
			return
		case <-term:
			s.logger.Info("asked to stop")
			s.end(drainGrace)
			return
		case <-tick.C:
			// Polling, because the kernel's own signal follows the thread that started the process, not the host.
			if now := os.Getppid(); now != parent {
				s.logger.Warn("the host has gone; ending")
				s.end(0)
				return
			}
		}
	}
}

// end stops serving, which makes Serve return and go-plugin remove its socket. What hangs on the way is not waited for.
func (s *server) end(grace time.Duration) {
	time.AfterFunc(grace+exitGrace, func() { os.Exit(1) })
	s.plugin.calls.drain(grace)
	s.mu.Lock()
	g := s.grpc
	s.mu.Unlock()
	if g == nil {
		os.Exit(1)
	}
	if grace > 0 {
		// The last answers may still be on their way out. A graceful stop alone would wait for go-plugin's own streams,
		// which the host keeps open.
		go g.GracefulStop()
		time.Sleep(flushGrace)
	}
	g.Stop()
}

// served is the plugin's side of the plugin set.
type served struct {
	plugin.NetRPCUnsupportedPlugin
	plugin *Plugin
}

// GRPCServer registers the plugin's services.
func (s *served) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	s.plugin.Register(g)
	return nil
}

// GRPCClient is never called in a plugin.
func (s *served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin has no client side")
}
