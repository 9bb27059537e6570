// Package provider is what the author of a provider plugin implements: a way to reach clusters.
//
// A provider turns the stored config of a cluster into a kubeconfig. It implements [Provider], and as much of
// [Validator], [Tester] and [Registrar] as it needs; sdk.Serve finds out by assertion. Every method may be called
// concurrently and must honour its context's deadline.
//
// Errors: return field.Errors when the config is at fault, [Unavailable] when something that the provider depends on
// cannot be reached; every other error counts as a fault of the plugin. No error may hold a secret.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/internal/fault"
)

// Provider connects to clusters. It is the least that a provider plugin implements.
type Provider interface {
	// Types names the cluster types that the plugin serves, in the order in which to offer them. It is called once,
	// before anything else, and must not depend on the plugin's configuration.
	Types() []Type
	// Connect says how to reach one cluster. The host calls it before the first use of a cluster, after each change of
	// its config, before the expiry of the last answer and once after a 401. It must have no side effect that hurts when
	// repeated. The host's deadline is 30 seconds.
	Connect(ctx context.Context, r Request) (Connection, error)
}

// Validator is an optional part of a provider: it checks a config beyond its schema and brings it into the form to
// store. Without it the host stores what passes the schema, unchanged.
type Validator interface {
	// ValidateConfig returns the config to store, or field.Errors. It has no side effects and should do no network call.
	// Validating the result again must give the same result.
	ValidateConfig(ctx context.Context, r Request) (Valid, error)
}

// Tester is an optional part of a provider: it replaces the host's own connection test.
type Tester interface {
	// TestConnection tries the connection and says what it saw. A failed test is a [Verdict], not an error.
	TestConnection(ctx context.Context, r Request) (Verdict, error)
}

// Registrar is an optional part of a provider, needed for types of [SelfService].
type Registrar interface {
	// DescribeRegistration says what an admin is to run so that a host registers itself.
	DescribeRegistration(ctx context.Context, r Request) (Registration, error)
	// CompleteRegistration turns the payload of a registration callback, a JSON object from an untrusted sender, into the
	// provider config to store: a value that marshals into a JSON object which passes the type's schema. What is wrong
	// with the payload is returned as field.Errors.
	CompleteRegistration(ctx context.Context, r Request, payload json.RawMessage) (config any, err error)
}

// Style is how a cluster of a type comes to be known.
type Style int

const (
	// Form: an admin fills in the provider config.
	Form Style = iota
	// SelfService: the cluster's host registers itself with a one-time token. Needs a [Registrar].
	SelfService
)

// Type is one way to connect.
type Type struct {
	// Name is what the cluster row says: lower-case letters, digits and dashes, at most 63, starting with a letter.
	Name string
	// Title is one line for lists. Required.
	Title string
	// Description is a few sentences of plain text; may be empty.
	Description string
	// Schema is the JSON Schema of the provider config: schema.MustOf of a struct, or one written by hand in the
	// documented profile. Form, validation, command line flags and docs come from it alone. Required.
	Schema []byte
	// Style is how clusters of this type are added.
	Style Style
}

// Request names one cluster and its config.
type Request struct {
	// ClusterID is the cluster row's id, for caching and logs. Empty in the stateless test of a form and in validation.
	ClusterID string
	// Type is one of the names that Types returned.
	Type string
	// Config is a JSON object that passes the type's schema. It may hold secrets: never log it.
	Config json.RawMessage
}

// Connection is a way to reach a cluster. Exactly one of Kubeconfig and BackendEnvironment is set; the zero value is an
// error, so it cannot be answered by accident.
type Connection struct {
	// Kubeconfig is YAML or JSON, at most 1 MiB. The host resolves one context and rebuilds it from an allow-list: exec,
	// auth-provider, file paths and plain http are refused.
	Kubeconfig []byte
	// BackendEnvironment says: use the host's own environment. The host honours it only for plugins to which the operator
	// grants it.
	BackendEnvironment bool
	// ExpiresAt is when the credentials end; the host connects again before. Zero: they do not end, as far as known.
	ExpiresAt time.Time
	// ReplacementConfig, when not nil, marshals into the config to store in place of the request's, for providers that
	// renew credentials.
	ReplacementConfig any
}

// Valid is an accepted config.
type Valid struct {
	// Config marshals into the config to store: a JSON object that passes the type's schema. Required.
	Config any
	// Warnings name what works but deserves attention, such as a credential that expires soon. Shown once, never stored.
	Warnings field.Errors
}

// Class is the host's classification of a connection test.
type Class string

// The classes of a connection test.
const (
	OK            Class = "ok"
	DNS           Class = "dns"
	Refused       Class = "refused"
	Timeout       Class = "timeout"
	TLS           Class = "tls"
	NotKubernetes Class = "not-kubernetes"
	Credentials   Class = "credentials"
	Permissions   Class = "permissions"
)

// Verdict is the result of a connection test. Jobs will run when Class is [OK].
type Verdict struct {
	Class Class
	// Message is one sentence with what was seen and what to do, without secrets. Required.
	Message string
}

// Registration is what an admin sees and what the registering host runs.
type Registration struct {
	// Commands in the order in which to show them; at least one.
	Commands []Command
	// Script is what the commands fetch. It is served without authentication and so holds no secret.
	Script []byte
}

// Command is one command to show with a copy button.
type Command struct {
	// Title says what it does, one line.
	Title string
	// Command has the placeholders {{server_url}}, {{token}}, {{script_url}} and {{script_sha256}}; the host fills them in.
	Command string
}

// Unavailable returns an error that says: something that the provider depends on cannot be reached now. The host tries
// again with back-off. The text is shown to operators and must hold no secret.
func Unavailable(format string, args ...any) error {
	return &fault.Fault{Code: codes.Unavailable, Err: fmt.Errorf(format, args...)}
}
