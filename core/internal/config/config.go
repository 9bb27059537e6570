// Package config reads the server's settings: one YAML file, then environment variables, then flags; the later wins.
//
// Load parses, merges and validates everything, and reports every fault at once. What it returns never changes. Each
// setting is described where it is defined, in settings.go; help texts, the example file and `config show` come from there.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Config is every setting of the server. It is read-only once Load has returned it.
type Config struct {
	Listen          string
	DebugListen     string
	DataDir         string
	Database        string // never empty after Load
	KeysetFile      string // never empty after Load
	ServerURL       string
	ShutdownTimeout time.Duration
	ReplicaAddress  string
	ReplicaLease    time.Duration

	LogLevel  string
	LogFormat string

	PluginDirs       []string
	Plugins          map[string]Plugin
	StrictPlugins    bool
	PluginEnv        []string
	PluginStartLimit time.Duration

	SelectorsBinding  bool
	PlacingErrorLimit time.Duration

	DefaultNamespace string
	PullSecrets      []string
	JobRetention     time.Duration

	// How long an attempt may be blocked before it starts, by cause; zero: for ever.
	StartImagePull       time.Duration
	StartContainerConfig time.Duration
	StartPodsRefused     time.Duration
	StartUnschedulable   time.Duration
	StartQueue           time.Duration

	LogArchive string // never empty after Load
	LogQuota   int64

	KubeQPS       int64
	KubeBurst     int64
	AllowCIDRs    []string
	AllowProxies  []string
	AllowInsecure bool
	// ProxyFromEnvironment: clusters are reached through the environment's proxy.
	ProxyFromEnvironment bool
	HealthInterval       time.Duration
	SuspectAfter         time.Duration
	LostAfter            time.Duration

	RegistryHost     string
	RegistryUser     string
	RegistryPassword string

	// Sources says where each value came from, by key; Warnings what looks like a mistake.
	Sources  map[string]string
	Warnings []string
}

// Plugin is what the operator says about one plugin.
type Plugin struct {
	// Config is the plugin's own configuration, a JSON object; it may hold secrets. Empty: none.
	Config json.RawMessage `json:"config,omitempty"`
	// SHA256 pins the file, hex. Empty: not pinned.
	SHA256 string `json:"sha256,omitempty"`
	// OnError is "fail" (also when empty) or "ignore".
	OnError string `json:"on_error,omitempty"`
	// Required makes the absence of the plugin an error under its failure policy.
	Required bool `json:"required,omitempty"`
	// GrantBackendEnvironment lets a provider answer with the server's own environment. Absent: only the two bundled
	// providers that need it.
	GrantBackendEnvironment *bool `json:"grant_backend_environment,omitempty"`
	// Timeout of each call, such as "5s". Empty: the host's default.
	Timeout string `json:"timeout,omitempty"`
}

// Input is where settings come from.
type Input struct {
	// File is the path of the YAML file. Empty: the environment's NAGELFLUH_CONFIG, else none.
	File string
	// Env are the environment's variables as NAME=value.
	Env []string
	// Flags are the values of flags that were given, by key of the setting.
	Flags map[string][]string
}

// Load reads all settings. The error lists every fault, each with the place where the value stands.
func Load(in Input) (*Config, error) {
	c := &Config{Sources: map[string]string{}}
	all := c.settings()
	var errs []error
	for _, s := range all {
		if err := s.value.set(s.def); err != nil {
			return nil, fmt.Errorf("default of %s: %w", s.key, err)
		}
		c.Sources[s.key] = "default"
	}
	env := environ(in.Env)
	file := in.File
	if file == "" {
		file = env["NAGELFLUH_CONFIG"]
	}
	if file != "" {
		errs = append(errs, c.readFile(file, all)...)
	}
	errs = append(errs, c.readEnv(env, all)...)
	errs = append(errs, c.readFlags(in.Flags, all)...)
	if len(errs) == 0 {
		errs = append(errs, c.finish()...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) readEnv(env map[string]string, all []setting) (errs []error) {
	known := map[string]bool{}
	for _, s := range all {
		known[s.envName()] = true
		v, given := env[s.envName()]
		if !given {
			continue
		}
		if err := s.value.set([]string{v}); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", s.envName(), err))
		}
		c.Sources[s.key] = "environment " + s.envName()
	}
	for _, name := range sortedKeys(env) {
		if strings.HasPrefix(name, "NAGELFLUH_") && !known[name] && !foreign.MatchString(name) {
			c.Warnings = append(c.Warnings, fmt.Sprintf("environment variable %s names no setting", name))
		}
	}
	return errs
}

// foreign are variables that are not settings of the server: of the command line, of tests, and those that Kubernetes
// sets for a Service named nagelfluh.
var foreign = regexp.MustCompile(`^NAGELFLUH_(CONFIG|SERVER|API_KEY|PROJECT|FAILPOINT|FAILPOINT_LIST|DEVCLUSTER|TEST_.*|SERVICE_.*|PORT|PORT_.*)$`)

func (c *Config) readFlags(flags map[string][]string, all []setting) (errs []error) {
	for _, s := range all {
		v, given := flags[s.key]
		if !given {
			continue
		}
		if err := s.value.set(v); err != nil {
			errs = append(errs, fmt.Errorf("flag --%s: %w", s.flagName(), err))
		}
		c.Sources[s.key] = "flag --" + s.flagName()
	}
	return errs
}

// finish fills in what follows from other settings and checks what one value alone cannot tell.
func (c *Config) finish() (errs []error) {
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s (from %s): %s", key, c.Sources[key], fmt.Sprintf(format, args...)))
	}
	if c.DataDir == "" {
		bad("data_dir", "is empty: want a directory")
	} else if abs, err := filepath.Abs(c.DataDir); err != nil {
		bad("data_dir", "%v", err)
	} else {
		c.DataDir = abs
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen", "%q is no address: want host:port", c.Listen)
	}
	if c.Database == "" {
		c.Database = "sqlite:" + filepath.Join(c.DataDir, "nagelfluh.db")
	}
	if !strings.HasPrefix(c.Database, "sqlite:") && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		bad("database", "begins with neither sqlite: nor postgres://")
	}
	if c.KeysetFile == "" {
		c.KeysetFile = filepath.Join(c.DataDir, "keyset.json")
	} else if abs, err := filepath.Abs(c.KeysetFile); err != nil {
		bad("secrets.keyset_file", "%v", err)
	} else {
		c.KeysetFile = abs
	}
	if path, err := filepath.Abs(strings.TrimPrefix(strings.TrimPrefix(c.Database, "sqlite:"), "//")); err == nil && path == c.KeysetFile {
		bad("secrets.keyset_file", "is the database's own file: the keyset must lie outside of it")
	}
	if c.LogArchive == "" {
		c.LogArchive = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(c.DataDir, "logs"))}).String()
	}
	if len(c.PluginDirs) == 0 {
		c.PluginDirs = defaultPluginDirs()
	}
	if c.ServerURL != "" {
		if u, err := url.Parse(c.ServerURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			bad("server_url", "%q is no http or https URL", c.ServerURL)
		}
	}
	if c.ReplicaAddress != "" {
		if u, err := url.Parse(c.ReplicaAddress); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			bad("replica.address", "%q is no http or https URL", c.ReplicaAddress)
		}
	}
	if c.ReplicaLease < 3*time.Second {
		bad("replica.lease", "%s is too short to be renewed in time: at least 3s", c.ReplicaLease)
	}
	for _, cidr := range c.AllowCIDRs {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			bad("kube.allow_cidrs", "%q is no network such as 10.0.0.0/8", cidr)
		}
	}
	if c.LostAfter < c.SuspectAfter {
		bad("health.lost_after", "%s is shorter than health.suspect_after (%s)", c.LostAfter, c.SuspectAfter)
	}
	for _, name := range sortedKeys(c.Plugins) {
		if why := c.Plugins[name].fault(name); why != "" {
			bad("plugins", "%s: %s", name, why)
		}
	}
	return errs
}

var pin = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (p Plugin) fault(name string) string {
	switch {
	case !strings.HasPrefix(name, "provider-") && !strings.HasPrefix(name, "selector-"):
		return "a plugin's name begins with provider- or selector-"
	case p.SHA256 != "" && !pin.MatchString(p.SHA256):
		return "sha256 is not 64 hex digits"
	case p.OnError != "" && p.OnError != "fail" && p.OnError != "ignore":
		return fmt.Sprintf("on_error is %q: want fail or ignore", p.OnError)
	case p.OnError == "ignore" && strings.HasPrefix(name, "provider-"):
		return "on_error is for selectors"
	}
	if p.Timeout != "" {
		if d, err := time.ParseDuration(p.Timeout); err != nil || d <= 0 {
			return fmt.Sprintf("timeout %q is no duration such as 5s", p.Timeout)
		}
	}
	return ""
}

// PluginTimeout is the plugin's call timeout; zero: the host's default.
func (p Plugin) PluginTimeout() time.Duration {
	d, _ := time.ParseDuration(p.Timeout) // checked by Load
	return d
}

// defaultPluginDirs are plugins/ beside the binary and the system path of packages.
func defaultPluginDirs() []string {
	dirs := []string{"/usr/lib/nagelfluh/plugins"}
	self, err := os.Executable()
	if err != nil {
		return dirs
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return append([]string{filepath.Join(filepath.Dir(self), "plugins")}, dirs...)
}

func environ(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok {
			out[name] = value
		}
	}
	return out
}
