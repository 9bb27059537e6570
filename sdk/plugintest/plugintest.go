// Package plugintest calls a plugin in memory: the same server, checks and conversions as over the wire, without a
// process. Test your own logic with it and the contract with the conformance package.
//
//	p := plugintest.Selector(t, &Selector{}, `{"label": "zone"}`)
//	answer, err := p.SelectCluster(ctx, selector.Request{...})
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// Conn serves a gRPC server in memory and returns a connection to it. Close both with the returned function.
func Conn(server *grpc.Server) (*grpc.ClientConn, func(), error) {
	listener := bufconn.Listen(1 << 20)
	served := make(chan struct{})
	go func() {
		defer close(served)
		// It ends by Stop only; a server that does not serve shows in the first call.
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:memory", append(handshake.CallOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)...)
	closer := func() {
		if conn != nil {
			// An in-memory connection has nothing to lose at its end.
			_ = conn.Close()
		}
		server.Stop()
		<-served
	}
	if err != nil {
		closer()
		return nil, nil, fmt.Errorf("in-memory connection: %w", err)
	}
	return conn, closer, nil
}

// start wraps an implementation, serves it for the test's time, describes and configures it as a host does.
func start(t testing.TB, impl any, config string) *grpc.ClientConn {
	t.Helper()
	p, err := sdk.New(sdk.Info{Name: t.Name()[:min(len(t.Name()), 100)], Version: "test"}, impl)
	if err != nil {
		t.Fatal(err)
	}
	server := p.NewServer()
	p.Register(server)
	conn, closer, err := Conn(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closer)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := pluginv1.NewPluginServiceClient(conn)
	if _, err := client.Describe(ctx, &pluginv1.DescribeRequest{HostVersion: "plugintest"}); err != nil {
		t.Fatalf("Describe: %v", plain(err))
	}
	answer, err := client.Configure(ctx, &pluginv1.ConfigureRequest{Config: []byte(config)})
	if err != nil {
		t.Fatalf("Configure: %v", plain(err))
	}
	if errs := fieldErrors(answer.GetFieldErrors()); len(errs) > 0 {
		t.Fatalf("Configure: %v", errs)
	}
	return conn
}

// Error is an error as the host sees it.
type Error struct {
	// Code is the gRPC status code: INVALID_ARGUMENT when the input is at fault, UNAVAILABLE, INTERNAL for a panic or an
	// answer that breaks the contract, UNKNOWN for any other error of the author's.
	Code    codes.Code
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// plain turns a status into what a test wants to compare.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return &Error{Code: s.Code(), Message: s.Message()}
	}
	return err
}

// CodeOf returns the code of an [Error], OK for nil and UNKNOWN for anything else.
func CodeOf(err error) codes.Code {
	var e *Error
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &e):
		return e.Code
	}
	return codes.Unknown
}

func fieldErrors(in []*pluginv1.FieldError) field.Errors {
	var out field.Errors
	for _, e := range in {
		out.Add(e.GetPath(), "%s", e.GetMessage())
	}
	return out
}
