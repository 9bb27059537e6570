// Package plugin finds, verifies, starts, supervises and calls the plugins.
//
// A plugin is an executable whose file name starts with "provider-" or "selector-"; the file name is its name and its
// place in the order (bytewise). Each runs as a process of its own, spoken to over gRPC with mutual TLS. The host keeps
// one slot a name: the slot starts the process, describes and configures it, watches it, and starts it again when it
// ends, with back-off and up to a failure budget. Nothing that a plugin does may stop or slow the host or another plugin:
// each call has a deadline and ends when the process ends.
//
// An error is never an answer: an unset or unknown member of an answer is an error, and so is a call to a plugin that is
// not running. What follows from the error is the caller's policy.
package plugin

import (
	"encoding/json"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Kind is what a plugin is for; it is the first part of the file name.
type Kind string

// The kinds of plugins.
const (
	Provider Kind = "provider"
	Selector Kind = "selector"
)

// State is where a plugin stands.
type State string

// States of a plugin. Starting, Running and Backoff change by themselves. Deactivated, Broken, Refused and Missing last
// until the file changes or Host.Reactivate is called.
const (
	Starting    State = "starting"
	Running     State = "running"
	Backoff     State = "backoff"     // it failed and is started again after a pause
	Deactivated State = "deactivated" // it failed more often than its budget allows
	Broken      State = "broken"      // the file cannot serve as a plugin
	Refused     State = "refused"     // the file could run, but the rules or the operator's configuration forbid it
	Missing     State = "missing"     // required by the configuration, but there is no such file
)

// Config is what the operator says about one plugin.
type Config struct {
	// Config is a JSON object for the plugin itself, checked against the plugin's schema. Empty: "{}". May hold secrets.
	Config json.RawMessage
	// SHA256 pins the resolved file: 64 hex digits. Empty: not pinned.
	SHA256 string
	// OnError is the failure policy of a selector: "fail" (also when empty) or "ignore".
	OnError string
	// Required makes the absence or refusal of the plugin an error under its failure policy instead of a start error or
	// a silence.
	Required bool
	// GrantBackendEnvironment allows a provider to answer "use the host's own environment". Nil: only
	// provider-sameasbackend.
	GrantBackendEnvironment *bool
	// Timeout bounds each call of the plugin's own service. Zero: 5 s for selectors, 30 s for providers.
	Timeout time.Duration
}

// Options make a Host. Only Dirs and Logger have no default.
type Options struct {
	// Dirs are searched for plugins, not recursively. A directory that does not exist is skipped.
	Dirs []string
	// Plugins is the operator's configuration by plugin name.
	Plugins map[string]Config
	// StrictPlugins makes a shadowed cluster type a start error, and refuses a plugin that shadows one later.
	StrictPlugins bool
	// Env names further environment variables that plugins get, beside PATH, HOME, TMPDIR, LANG, TZ and SSL_CERT_*.
	Env []string
	// HostVersion is told to the plugins. Empty: "dev".
	HostVersion string
	// SocketDir is where the private socket directory is made. Empty: the system's directory for temporary files.
	SocketDir string
	// StartLimit bounds one start of a plugin, up to its being configured. Zero: 60 s.
	StartLimit time.Duration
	// StartWait bounds how long Start waits for plugins that are slow to start. Zero: 5 s.
	StartWait time.Duration
	// FailureBudget is how many failures within FailureWindow are followed by another start. Zero: 8, which
	// with the back-off (none, then 1 s doubled up to 1 min, less up to half) gives a plugin about a minute.
	FailureBudget int
	// FailureWindow is how long a failure counts. Zero: 10 min.
	FailureWindow time.Duration
	// Logger gets what happens to plugins, and what they log, under their names.
	Logger hclog.Logger
	// Observe, when set, is told of each finished call. It must be quick and safe for concurrent use.
	Observe func(plugin, method string, took time.Duration, err error)
}

// Status is what there is to know about one plugin.
type Status struct {
	Name    string
	Kind    Kind
	Version string // the plugin's own; empty until it was described
	Title   string // one line for lists; empty until it was described
	DocsURL string // empty: none
	State   State
	Since   time.Time // since when State holds, UTC
	// Types are the cluster types that a provider serves; Shadowed those that it offers but another serves.
	Types    []string
	Shadowed []Shadow
	Required bool
	// IgnoreErrors is the failure policy.
	IgnoreErrors bool
	Restarts     int    // starts after the first
	LastError    string // what is or was last amiss and what to do about it, without secrets; empty: nothing so far
	Path         string // as found; empty when missing
	PID          int    // 0: not running
	Memory       int64  // resident bytes; 0: not known
}

// Shadow is a cluster type that a plugin offers but an earlier one, by name, serves.
type Shadow struct {
	Type string
	By   string // name of the plugin that serves it
}

// TypeInfo is one cluster type as one provider offers it.
type TypeInfo struct {
	Name        string
	Title       string
	Description string
	// Schema is the JSON Schema of the provider config.
	Schema json.RawMessage
	// SelfService says that clusters of the type register themselves; otherwise an admin fills in the config.
	SelfService bool
	Plugin      string // who offers it
	// ShadowedBy names the plugin that serves the type instead; empty: Plugin does.
	ShadowedBy string
	// Problem says why the type cannot be used now; empty: it can.
	Problem string
}
