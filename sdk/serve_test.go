//go:build unix

package sdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// roleEnv makes the test binary act as a plugin or as a host.
const roleEnv = "SDK_TEST_ROLE"

// early holds the stdout of before main, as a library's package variable would.
var early = os.Stdout

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "noisy":
		sdk.Serve(sdk.Info{Name: "noisy", Version: "1"}, &noisy{})
		return
	case "quiet":
		sdk.Serve(sdk.Info{Name: "quiet", Version: "1"}, &chatty{})
		return
	case "host":
		host()
		return
	}
	goleak.VerifyTestMain(m)
}

// chatty prints, panics and hangs as the process name tells it to.
type chatty struct{}

func (chatty) SelectCluster(ctx context.Context, r selector.Request) (selector.Answer, error) {
	switch r.Process.Name {
	case "panic":
		panic("the author's bug")
	case "print":
		fmt.Println("printed to stdout")
		fmt.Fprintln(os.Stderr, "printed to stderr")
		fmt.Fprintln(early, "printed to the early stdout")
	case "hang":
		<-ctx.Done()
		return selector.Answer{}, ctx.Err()
	case "slow":
		fmt.Fprintln(os.Stderr, "slow has begun")
		time.Sleep(time.Second)
	case "size":
		return selector.Abstain(fmt.Sprint(len(r.Process.Labels["big"]))), nil
	}
	return selector.Abstain("no opinion"), nil
}

// noisy prints from the first moment at which Serve calls the author's code.
type noisy struct{ chatty }

func (noisy) ConfigSchema() []byte {
	fmt.Print("noise without end of line")
	go func() {
		for {
			fmt.Fprintln(early, "noise on the early stdout")
			fmt.Println("noise on stdout")
			time.Sleep(time.Millisecond)
		}
	}()
	return []byte(`{"type": "object"}`)
}

func (noisy) Configure(context.Context, json.RawMessage) error { return nil }

// buffer collects a plugin's stderr.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts this binary as a plugin in the given role, as a host does.
func start(t *testing.T, role string) (*plugin.Client, *grpc.ClientConn, *buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=" + role}
	stderr := &buffer{}
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
		UnixSocketConfig: &plugin.UnixSocketConfig{},
	})
	t.Cleanup(client.Kill)
	protocol, err := client.Client()
	if err != nil {
		t.Fatalf("start: %v\n%s", err, stderr)
	}
	raw, err := protocol.Dispense(handshake.SetName)
	if err != nil {
		t.Fatal(err)
	}
	return client, raw.(*grpc.ClientConn), stderr
}

func ask(t *testing.T, conn *grpc.ClientConn, name string) (*selectorv1.SelectClusterResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return selectorv1.NewSelectorServiceClient(conn).SelectCluster(ctx, &selectorv1.SelectClusterRequest{Process: &selectorv1.Process{Name: name}})
}

// eventually waits for a condition, at most ten seconds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestServe(t *testing.T) {
	_, conn, stderr := start(t, "quiet")
	description, err := pluginv1.NewPluginServiceClient(conn).Describe(context.Background(), &pluginv1.DescribeRequest{HostVersion: "test"})
	if err != nil || description.GetName() != "quiet" || description.GetKind() != pluginv1.Kind_KIND_SELECTOR {
		t.Fatalf("Describe: %v, %v", description, err)
	}

	t.Run("a panic is an error of that call", func(t *testing.T) {
		_, err := ask(t, conn, "panic")
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "panicked in SelectCluster: the author's bug") {
			t.Errorf("got %v", err)
		}
		eventually(t, "the stack is in the log", func() bool { return strings.Contains(stderr.String(), "serve_test.go") })
		if _, err := ask(t, conn, ""); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
	t.Run("what is printed goes to stderr", func(t *testing.T) {
		if _, err := ask(t, conn, "print"); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"printed to stdout", "printed to stderr", "printed to the early stdout"} {
			eventually(t, line, func() bool { return strings.Contains(stderr.String(), line+"\n") })
		}
	})
	t.Run("messages of 15 MB pass", func(t *testing.T) {
		r := &selectorv1.SelectClusterRequest{Process: &selectorv1.Process{Name: "size", Labels: map[string]string{"big": strings.Repeat("x", 15<<20)}}}
		resp, err := selectorv1.NewSelectorServiceClient(conn).SelectCluster(context.Background(), r)
		if err != nil || resp.GetAbstained().GetReason() != fmt.Sprint(15<<20) {
			t.Errorf("got %v, %v", resp, err)
		}
	})
}

func TestServeWithNoise(t *testing.T) {
	_, conn, stderr := start(t, "noisy")
	if _, err := ask(t, conn, ""); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"noise on stdout", "noise on the early stdout"} {
		eventually(t, line, func() bool { return strings.Contains(stderr.String(), line) })
	}
}

func TestServeByHand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=quiet"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "plugin directory") {
		t.Errorf("got %v, %s", err, out)
	}
}

func TestServeEndsOnTerm(t *testing.T) {
	client, conn, stderr := start(t, "quiet")
	if _, err := ask(t, conn, ""); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := ask(t, conn, "slow")
		answered <- err
	}()
	pid := client.ReattachConfig().Pid
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slow call is under way", func() bool { return strings.Contains(stderr.String(), "slow has begun") })
	if err := process.Signal(term); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the call in flight was cut off: %v", err)
	}
	eventually(t, "the plugin ends", client.Exited)
}

// TestServeEndsWithHost starts a host that starts the plugin, kills the host and sees the plugin go, socket and all.
func TestServeEndsWithHost(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "ngf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=host", plugin.EnvUnixSocketDir + "=" + sockets}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(stdout, &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	eventually(t, "the plugin ends", func() bool { return gone(pid) })
	if left, _ := filepath.Glob(filepath.Join(sockets, "*")); len(left) > 0 {
		t.Errorf("sockets are left: %v", left)
	}
}

// host starts the plugin, prints its pid and waits to be killed.
func host() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{roleEnv + "=quiet", plugin.EnvUnixSocketDir + "=" + os.Getenv(plugin.EnvUnixSocketDir)}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: handshake.Config(), VersionedPlugins: handshake.ClientSets(), Cmd: cmd, AutoMTLS: true, SkipHostEnv: true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(), Stderr: io.Discard,
	})
	if _, err := client.Client(); err != nil {
		panic(err)
	}
	fmt.Println(client.ReattachConfig().Pid)
	select {}
}
