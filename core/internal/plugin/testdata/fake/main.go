// Command fake is a plugin that behaves as a test wants: well, or badly. What it does stands in the JSON file
// behave/NAME beside it, because its environment is clean and its file name is its only argument.
//
// It speaks the contract without the sdk, so that it can break it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	providerv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/provider/v1"
	selectorv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/selector/v1"
)

// behaviour is the file's content.
type behaviour struct {
	Stdout     string // printed before the handshake
	StdoutFill int    // and so many more bytes in the same line
	Stderr     string
	Panic      string // before the handshake
	Exit       *int   // before the handshake
	Hang       bool   // never shakes hands
	Release    string // waits for this file to appear before the handshake
	Cookie     string
	Protocol   int
	Spam       bool   // on stdout, after the handshake, as fast as it goes
	Child      bool   // starts a child that sleeps
	Stubborn   bool   // ignores SIGTERM
	Started    string // a file that gets one line a start
	Unhealthy  string // a file whose existence makes it fail health checks
	Methods    map[string]method
}

// method is what one method does.
type method struct {
	Answer  json.RawMessage // protojson
	Code    int             // gRPC status
	Message string
	ExitAt  int32  // exits at the n-th call
	Always  bool   // exits at every call
	Panic   string // written to stderr as Go would before it exits
	Hang    bool
	Told    string // a file that gets one line when a call hangs
	Env     bool   // answers with its environment as the reason
	Fill    int    // pads the reason
}

func main() {
	name := filepath.Base(os.Args[0])
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "behave", name))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	var b behaviour
	if err := json.Unmarshal(raw, &b); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	b.prelude()
	f := &fake{b: b}
	protocol := handshake.ProtocolVersion
	if b.Protocol != 0 {
		protocol = b.Protocol
	}
	config := handshake.Config()
	if b.Cookie != "" {
		config.MagicCookieValue = b.Cookie
	}
	stdout := os.Stdout
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  config,
		VersionedPlugins: map[int]goplugin.PluginSet{protocol: {handshake.SetName: f}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if b.Spam {
				go spam(stdout)
			}
			return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(32<<20), grpc.MaxSendMsgSize(32<<20), grpc.UnaryInterceptor(f.health))...)
		},
	})
}

// prelude is what happens before the handshake.
func (b behaviour) prelude() {
	record(b.Started)
	if b.Stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	if b.Child {
		child := exec.Command("sleep", "300")
		if err := child.Start(); err != nil {
			panic(err)
		}
	}
	fmt.Fprint(os.Stderr, b.Stderr)
	if b.Stdout != "" || b.StdoutFill > 0 {
		fmt.Print(b.Stdout, strings.Repeat("x", b.StdoutFill), "\n")
	}
	if b.Panic != "" {
		panic(b.Panic)
	}
	if b.Exit != nil {
		os.Exit(*b.Exit)
	}
	if b.Hang {
		select {}
	}
	for b.Release != "" {
		if _, err := os.Stat(b.Release); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// spam writes to the stdout that the host reads; go-plugin has replaced os.Stdout by then or soon does.
func spam(stdout *os.File) {
	line := []byte(strings.Repeat("spam ", 200) + "\n")
	// The handshake must be the first line.
	time.Sleep(200 * time.Millisecond)
	for {
		if _, err := stdout.Write(line); err != nil {
			return
		}
		fmt.Print(string(line))
	}
}

func record(path string) {
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, os.Getpid())
}

type fake struct {
	goplugin.NetRPCUnsupportedPlugin
	pluginv1.UnimplementedPluginServiceServer
	providerv1.UnimplementedProviderServiceServer
	selectorv1.UnimplementedSelectorServiceServer
	b      behaviour
	counts sync.Map
}

func (f *fake) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginv1.RegisterPluginServiceServer(s, f)
	providerv1.RegisterProviderServiceServer(s, f)
	selectorv1.RegisterSelectorServiceServer(s, f)
	return nil
}

func (f *fake) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// health fails health checks when it is told to.
func (f *fake) health(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod == grpc_health_v1.Health_Check_FullMethodName && f.b.Unhealthy != "" {
		if _, err := os.Stat(f.b.Unhealthy); err == nil {
			return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
		}
	}
	return next(ctx, req)
}

// act does what the behaviour says and fills in the answer.
func (f *fake) act(ctx context.Context, name string, answer proto.Message) error {
	m, ok := f.b.Methods[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "method %s", name)
	}
	count, _ := f.counts.LoadOrStore(name, new(atomic.Int32))
	if n := count.(*atomic.Int32).Add(1); m.Always || n == m.ExitAt {
		if m.Panic != "" { // past go-plugin, which has replaced os.Stderr
			_, _ = syscall.Write(2, []byte("panic: "+m.Panic+"\n\ngoroutine 7 [running]:\nmain.main()\n"))
		}
		os.Exit(3)
	}
	if m.Hang {
		record(m.Told)
		select {}
	}
	if m.Code != 0 {
		return status.Error(codes.Code(m.Code), m.Message)
	}
	if len(m.Answer) == 0 {
		return nil
	}
	return protojson.Unmarshal(m.Answer, answer)
}

func (f *fake) Describe(ctx context.Context, _ *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	r := &pluginv1.DescribeResponse{}
	return r, f.act(ctx, "Describe", r)
}

func (f *fake) Configure(ctx context.Context, q *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	r := &pluginv1.ConfigureResponse{}
	if f.b.Methods["Configure"].Env {
		_, _ = syscall.Write(2, append([]byte("configured with "), append(q.GetConfig(), '\n')...))
	}
	return r, f.act(ctx, "Configure", r)
}

func (f *fake) ListClusterTypes(ctx context.Context, _ *providerv1.ListClusterTypesRequest) (*providerv1.ListClusterTypesResponse, error) {
	r := &providerv1.ListClusterTypesResponse{}
	return r, f.act(ctx, "ListClusterTypes", r)
}

func (f *fake) ValidateConfig(ctx context.Context, _ *providerv1.ValidateConfigRequest) (*providerv1.ValidateConfigResponse, error) {
	r := &providerv1.ValidateConfigResponse{}
	return r, f.act(ctx, "ValidateConfig", r)
}

func (f *fake) Connect(ctx context.Context, q *providerv1.ConnectRequest) (*providerv1.ConnectResponse, error) {
	r := &providerv1.ConnectResponse{}
	if f.b.Methods["Connect"].Env { // gives away what it was told
		_, _ = syscall.Write(2, append([]byte(`{"@level":"error","@message":"leak","config":`), append(mustJSON(string(q.GetConfig())), "}\n"...)...))
	}
	err := f.act(ctx, "Connect", r)
	if fill := f.b.Methods["Connect"].Fill; fill > 0 {
		r.Connection = &providerv1.ConnectResponse_Kubeconfig{Kubeconfig: []byte(strings.Repeat("k", fill))}
	}
	return r, err
}

func (f *fake) SelectCluster(ctx context.Context, q *selectorv1.SelectClusterRequest) (*selectorv1.SelectClusterResponse, error) {
	r := &selectorv1.SelectClusterResponse{}
	if err := f.act(ctx, "SelectCluster", r); err != nil {
		return nil, err
	}
	m := f.b.Methods["SelectCluster"]
	if m.Env {
		r.Answer = &selectorv1.SelectClusterResponse_Selected{Selected: &selectorv1.Selected{ClusterId: "env", Reason: strings.Join(os.Environ(), "\n")}}
	}
	if m.Fill > 0 {
		r.Answer = &selectorv1.SelectClusterResponse_Abstained{Abstained: &selectorv1.Abstained{Reason: strings.Repeat("r", m.Fill)}}
	}
	return r, nil
}

func (f *fake) SelectClusters(ctx context.Context, q *selectorv1.SelectClustersRequest) (*selectorv1.SelectClustersResponse, error) {
	r := &selectorv1.SelectClustersResponse{}
	return r, f.act(ctx, "SelectClusters", r)
}

func (f *fake) SelectStorage(ctx context.Context, q *selectorv1.SelectStorageRequest) (*selectorv1.SelectStorageResponse, error) {
	r := &selectorv1.SelectStorageResponse{}
	return r, f.act(ctx, "SelectStorage", r)
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
