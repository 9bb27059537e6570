package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
)

// instance is one running process of a plugin with its connection. A go-plugin client cannot be used again after its
// process has ended, so every start makes a new instance.
type instance struct {
	proc   *process
	client *goplugin.Client
	conn   *grpc.ClientConn
	dir    string // of its socket

	plugin   pluginv1.PluginServiceClient
	provider providerv1.ProviderServiceClient
	selector selectorv1.SelectorServiceClient
	health   grpc_health_v1.HealthClient
}

// boot starts the file and shakes hands. The context ends with the start limit.
func (s *slot) boot(ctx context.Context, f file) (*instance, error) {
	dir, err := s.host.socketDir()
	if err != nil {
		return nil, err
	}
	out := newOutput(s.log, s.redact)
	sets := s.host.sets()
	in := &instance{dir: dir, proc: newProcess(ctx, f, out, func() {
		s.note("the file is being written; it is started when that is over")
	})}
	in.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: sets,
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			in.proc.env = s.environ(cmd.Env, dir)
			return in.proc, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: dir},
		SkipHostEnv:      true,
		AutoMTLS:         true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		StartTimeout:     s.host.goPluginLimit(),
		GRPCDialOptions:  append(handshake.CallOptions(), grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig()),
		SyncStdout:       strayStdout{out},
		SyncStderr:       strayStderr{out},
		Logger:           hclog.NewNullLogger(), // the host says all that go-plugin would, once and with the plugin's name
	})
	protocol, err := in.shake(ctx)
	if err != nil {
		in.stop()
		return nil, s.startError(ctx, in, f, slices.Sorted(maps.Keys(sets)), err)
	}
	in.proc.shaken.Store(true)
	in.conn = protocol.Conn
	in.plugin = pluginv1.NewPluginServiceClient(in.conn)
	in.provider = providerv1.NewProviderServiceClient(in.conn)
	in.selector = selectorv1.NewSelectorServiceClient(in.conn)
	in.health = grpc_health_v1.NewHealthClient(in.conn)
	go func() { // calls end with the process, whatever still holds its socket
		<-in.proc.exited
		_ = in.conn.Close() // go-plugin closes it, too; one of the two is late
	}()
	return in, nil
}

// goPluginLimit is go-plugin's own start limit. Our context is what bounds a start; this is only longer.
func (h *Host) goPluginLimit() time.Duration { return h.o.StartLimit + time.Minute }

// shake waits for go-plugin, which has no context: when ours ends, the process is ended, and that ends the wait.
func (in *instance) shake(ctx context.Context) (*goplugin.GRPCClient, error) {
	type outcome struct {
		protocol goplugin.ClientProtocol
		err      error
	}
	connected := make(chan outcome, 1)
	go func() {
		protocol, err := in.client.Client()
		connected <- outcome{protocol, err}
	}()
	var o outcome
	select {
	case o = <-connected:
	case <-ctx.Done():
		// The runner's own context ends a start that has not come to a process yet.
		for range 10 {
			in.proc.end()
			select {
			case o = <-connected:
			case <-time.After(100 * time.Millisecond):
				continue
			}
			break
		}
		return nil, ctx.Err()
	}
	if o.err != nil {
		return nil, o.err
	}
	return o.protocol.(*goplugin.GRPCClient), nil // the only protocol that is allowed
}

// stop ends the process and frees everything of it, in bounded time: first the plugin is asked, then its process group
// gets SIGTERM, then SIGKILL.
func (in *instance) stop() {
	killed := make(chan struct{})
	go func() {
		in.client.Kill() // asks, waits 2 s, and then calls the runner's Kill
		close(killed)
	}()
	if in.proc.pid.Load() != 0 && !await(in.proc.done, stopGrace) {
		in.proc.end()
	}
	await(killed, killGrace)
	os.RemoveAll(in.dir)
}

// stopGrace is how long a plugin that was asked to stop has until its process is ended.
const stopGrace = 2500 * time.Millisecond

// environ is what the plugin's process gets: the allow-list, and what go-plugin needs to tell it.
func (s *slot) environ(handshakeVars []string, dir string) []string {
	env := environment(s.host.environ(), s.host.o.Env)
	for _, entry := range handshakeVars {
		if !strings.HasPrefix(entry, goplugin.EnvUnixSocketDir+"=") {
			env = append(env, entry)
		}
	}
	return append(env,
		goplugin.EnvUnixSocketDir+"="+dir, // directly, because go-plugin's own directory in it makes a longer path
		handshake.LogLevelEnv+"="+s.log.GetLevel().String())
}

// startError says why a start came to nothing: what is wrong with the file, with its version, or what it said instead of
// a handshake. The instance has been stopped.
func (s *slot) startError(ctx context.Context, in *instance, f file, spoken []int, err error) error {
	p := in.proc
	if notStarted := p.notStarted(); notStarted != nil || p.pid.Load() == 0 {
		if bad := unrunnable(f.real, notStarted); bad != nil {
			return bad
		}
		return fmt.Errorf("%s cannot be run: %w", f.path, errors.Join(notStarted, err))
	}
	first := p.out.printed()
	if bad := versionProblem(s.name, f.path, first, spoken); bad != nil {
		return bad
	}
	said := "printed nothing"
	if first != "" {
		said = fmt.Sprintf("printed %q", first)
	}
	if fields := strings.Split(first, "|"); len(fields) >= 4 && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s shook hands, but no connection came about: %s; %s", f.path, s.redact.clean(err.Error()), p.ending())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s was not ready within the start limit of %s (it %s on stdout); %s", f.path, s.host.o.StartLimit, said, p.ending())
	}
	return fmt.Errorf("%s %s on stdout instead of a handshake; %s", f.path, said, p.ending())
}

// ending is the epitaph of a process that may not have ended.
func (p *process) ending() string {
	select {
	case <-p.done:
		return p.epitaph()
	default:
		return "its process does not end"
	}
}

// versionProblem says whose version is whose, when that is what is wrong with a handshake.
func versionProblem(name, path, first string, spoken []int) *problem {
	fields := strings.Split(first, "|")
	if len(fields) < 4 {
		return nil
	}
	core, err := strconv.Atoi(fields[0])
	if err != nil {
		return nil
	}
	if core != goplugin.CoreProtocolVersion {
		return broken(fmt.Sprintf("plugin %s (%s) uses version %d of go-plugin's own protocol; this server uses %d", name, path, core,
			goplugin.CoreProtocolVersion), "build the plugin with a current sdk")
	}
	version, err := strconv.Atoi(fields[1])
	if err != nil || slices.Contains(spoken, version) {
		return nil
	}
	remedy := "update the plugin"
	if version > slices.Max(spoken) {
		remedy = "update the server"
	}
	words := make([]string, len(spoken))
	for i, v := range spoken {
		words[i] = strconv.Itoa(v)
	}
	return broken(fmt.Sprintf("plugin %s (%s) speaks protocol %d; this server supports %s", name, path, version,
		strings.Join(words, " and ")), remedy)
}
