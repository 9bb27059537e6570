// Package handshake holds what a Nagelfluh host and its plugins must agree on before they speak: the go-plugin cookie,
// the protocol version and the sizes. Plugin authors do not need it; sdk.Serve uses it.
package handshake

import (
	"context"
	"strings"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

const (
	// CookieKey is the environment variable by which a plugin knows that a host has started it.
	CookieKey = "NAGELFLUH_PLUGIN"
	// CookieValue is its value. It is no secret and no protection.
	CookieValue = "8a1f7c0de5b94e3696f2c4d7a30b58e1"
	// ProtocolVersion is the version of the contract: the "v1" of the proto packages.
	ProtocolVersion = 1
	// SetName is the one name in go-plugin's plugin set; a plugin serves plugin.v1 and the service of its kind under it.
	SetName = "nagelfluh"
	// MaxMessageBytes bounds one gRPC message in either direction.
	MaxMessageBytes = 16 << 20
	// LogLevelEnv is the environment variable with the least level that the plugin logs: trace, debug, info, warn or
	// error. Unset: info.
	LogLevelEnv = "NAGELFLUH_PLUGIN_LOG_LEVEL"
	// ProviderPrefix starts the file name of every provider plugin.
	ProviderPrefix = "provider-"
	// SelectorPrefix starts the file name of every selector plugin.
	SelectorPrefix = "selector-"
)

// IsPluginName says whether a file of this name is a plugin.
func IsPluginName(base string) bool {
	for _, prefix := range []string{ProviderPrefix, SelectorPrefix} {
		if strings.HasPrefix(base, prefix) && len(base) > len(prefix) {
			return true
		}
	}
	return false
}

// Config returns go-plugin's part of the agreement. The protocol version is in [ClientSets].
func Config() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue}
}

// ClientSets returns the plugin sets of a host, for ClientConfig.VersionedPlugins. Dispensing [SetName] gives the
// *grpc.ClientConn, on which the host makes the clients of the generated packages.
func ClientSets() map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{ProtocolVersion: {SetName: client{}}}
}

// window is the flow control window of both sides, in bytes. A fixed one spares the pings by which gRPC measures a network
// that is none here: they follow every message and wake both processes once more.
const window = 1 << 20

// CallOptions returns the dial options of a host: the message limits and the window.
func CallOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageBytes),
			grpc.MaxCallSendMsgSize(MaxMessageBytes),
		),
	}
}

// ServerOptions returns the options of a plugin's server: the same limits and window.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
	}
}

// client is the host's side of the plugin set.
type client struct {
	plugin.NetRPCUnsupportedPlugin
}

// GRPCServer registers nothing: this is the client's side.
func (client) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }

// GRPCClient returns the connection itself.
func (client) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
