package config

import "strings"

// setting is one setting: its key in the file, what it means, and where its value goes. The environment variable and the
// flag follow from the key unless they are named.
type setting struct {
	key    string // dots nest: log.level
	value  value
	def    []string // as in the environment; nil: empty
	doc    string
	env    string
	flag   string
	secret bool   // no flag, masked when shown
	sample string // for the example file where the default says little
}

// settings lists every setting in the order of the example file.
func (c *Config) settings() []setting {
	return []setting{
		{key: "listen", value: text(&c.Listen), def: one("127.0.0.1:8080"),
			doc: "Address to listen on, host:port; port 0 takes a free one. Plain HTTP: put a proxy with TLS in front of it."},
		{key: "data_dir", value: text(&c.DataDir), def: one("data"),
			doc: "Directory of everything the server keeps in files: database, logs, the first admin key. Made when absent."},
		{key: "database", value: text(&c.Database), secret: true, flag: "database", sample: "postgres://nagelfluh:password@db.example:5432/nagelfluh",
			doc: "Database: sqlite:PATH or postgres://user:password@host:port/name. Empty: SQLite in the data directory."},
		{key: "secrets.keyset_file", value: text(&c.KeysetFile), sample: "/etc/nagelfluh/keyset.json",
			doc: "File with the keys that the provider configs of clusters are encrypted with. Made at the first start, readable by its owner only; back it up " +
				"with the database, but not in the same place. Empty: keyset.json in the data directory."},
		{key: "server_url", value: text(&c.ServerURL), env: "SERVER_URL", sample: "https://nagelfluh.example",
			doc: "Address under which users reach the server, shown at the start. Empty: the address it listens on."},
		{key: "shutdown_timeout", value: duration(&c.ShutdownTimeout), def: one("20s"),
			doc: "How long requests may take to finish after the first signal. Jobs are not affected: they go on at their clusters."},
		{key: "debug_listen", value: text(&c.DebugListen), sample: "127.0.0.1:6060",
			doc: "Address of Go's profiles (/debug/pprof), host:port. They need no key: keep it on loopback. Empty: none."},

		{key: "replica.address", value: text(&c.ReplicaAddress), sample: "http://10.0.0.5:8080",
			doc: "Address under which the other servers on the same PostgreSQL database reach this one, http or https; the leader is sent users' requests there, " +
				"with their keys. Empty: the address it listens on, with the machine's name when it listens on all."},
		{key: "replica.lease", value: duration(&c.ReplicaLease), def: one("8s"),
			doc: "How long a leading server on PostgreSQL may be silent before another one takes over. The same at all servers; at least 3s."},

		{key: "log.level", value: choice(&c.LogLevel, "trace", "debug", "info", "warn", "error"), def: one("info"),
			doc: "Least level that is logged: trace, debug, info, warn or error."},
		{key: "log.format", value: choice(&c.LogFormat, "text", "json"), def: one("text"),
			doc: "Form of the log on standard error: text or json."},

		{key: "plugin_dirs", value: list(&c.PluginDirs), flag: "plugin-dir", env: "NAGELFLUH_PLUGIN_DIRS", sample: "/opt/nagelfluh/plugins",
			doc: "Directories of plugins, not searched below. Empty: plugins/ beside the binary and /usr/lib/nagelfluh/plugins."},
		{key: "strict_plugins", value: boolean(&c.StrictPlugins), def: one("false"),
			doc: "Refuse to start when two plugins offer the same cluster type. Otherwise the first by name serves it and the other is shown as shadowed."},
		{key: "plugin_env", value: list(&c.PluginEnv), sample: "HTTPS_PROXY",
			doc: "Names of further environment variables that plugins get, beside PATH, HOME, TMPDIR, LANG, TZ and SSL_CERT_*."},
		{key: "plugin_start_limit", value: duration(&c.PluginStartLimit), def: one("60s"),
			doc: "How long one start of a plugin may take."},
		{key: "plugins", value: plugins(&c.Plugins), secret: true,
			sample: `{selector-gpu: {required: true, on_error: fail, timeout: 5s, sha256: "<64 hex digits>", config: {}}}`,
			doc: "What to tell and demand of plugins, by name. config: JSON object for the plugin itself, may hold secrets. sha256: pin of the file. " +
				"on_error: fail (default; the attempt waits and is tried again) or ignore, for selectors. required: absence is an error under that policy. " +
				"grant_backend_environment: the provider may answer \"use the server's own environment\" (default: only provider-sameasbackend). " +
				"timeout: of each call (default: 5s for selectors, 30s for providers). In the environment: the same as JSON."},

		{key: "selectors_binding", value: boolean(&c.SelectorsBinding), def: one("false"),
			doc: "Let selectors overrule the cluster that a submission asks for: it fails when a selector names another one."},
		{key: "placing_error_limit", value: duration(&c.PlacingErrorLimit), def: one("1h"),
			doc: "How long a failing selector may keep an attempt waiting before the attempt fails."},

		{key: "default_namespace", value: text(&c.DefaultNamespace), env: "K8S_NAMESPACE", def: one("nagelfluh-jobs"),
			doc: "Kubernetes namespace of the Jobs at clusters that name none."},
		{key: "jobs.pull_secrets", value: list(&c.PullSecrets), sample: "registry-credentials",
			doc: "Names of Secrets in the namespace of the Jobs that hold registry credentials."},
		{key: "jobs.retention", value: duration(&c.JobRetention), def: one("15m"),
			doc: "How long the Job of an ended attempt is kept at its cluster after its logs are stored."},
		{key: "start_limits.image_pull", value: limit(&c.StartImagePull), def: one("15m"),
			doc: "How long an attempt may wait for an image that cannot be pulled before it fails and its Job is deleted. 0: for ever, as for all start limits. A submission may set its own (spec.start_limits)."},
		{key: "start_limits.container_config", value: limit(&c.StartContainerConfig), def: one("15m"),
			doc: "The same for a container that cannot be made as configured, such as by a Secret that is missing."},
		{key: "start_limits.pods_refused", value: limit(&c.StartPodsRefused), def: one("1h"),
			doc: "The same for pods that the cluster refuses: quota, LimitRange, admission webhook."},
		{key: "start_limits.unschedulable", value: limit(&c.StartUnschedulable), def: one("0s"),
			doc: "The same for pods that no node takes."},
		{key: "start_limits.queue", value: limit(&c.StartQueue), def: one("0s"),
			doc: "The same for Jobs that their Kueue queue does not admit."},

		{key: "logs.archive", value: text(&c.LogArchive), sample: "s3://bucket?region=eu-central-1&prefix=nagelfluh/",
			doc: "Where logs are kept for good: file:///PATH or an object store's URL. Empty: logs/ in the data directory."},
		{key: "logs.quota", value: integer(&c.LogQuota, 0), def: one("1073741824"),
			doc: "Most bytes of log that one attempt keeps; a marker says where it was cut. 0: no limit."},

		{key: "kube.qps", value: integer(&c.KubeQPS, 1), def: one("500"),
			doc: "Most requests per second to each cluster."},
		{key: "kube.burst", value: integer(&c.KubeBurst, 1), def: one("1000"),
			doc: "Requests to each cluster that may be made at once above that rate."},
		{key: "kube.allow_cidrs", value: list(&c.AllowCIDRs), sample: "169.254.10.0/24",
			doc: "Networks that clusters may have although they are on the deny list (metadata services, link-local, unspecified, multicast)."},
		{key: "kube.allow_proxies", value: list(&c.AllowProxies), sample: "http://proxy.example:3128",
			doc: "Values of proxy-url that a kubeconfig may have."},
		{key: "kube.proxy_from_environment", value: boolean(&c.ProxyFromEnvironment), def: one("false"),
			doc: "Reach clusters whose kubeconfig names no proxy through that of the environment (HTTPS_PROXY, NO_PROXY)."},
		{key: "kube.allow_insecure", value: boolean(&c.AllowInsecure), def: one("false"),
			doc: "Take kubeconfigs with insecure-skip-tls-verify. Whoever is on the way to such a cluster can read and change everything."},
		{key: "health.interval", value: duration(&c.HealthInterval), def: one("10s"),
			doc: "How often each cluster is looked at."},
		{key: "health.suspect_after", value: duration(&c.SuspectAfter), def: one("5s"),
			doc: "How long a cluster must not answer before nothing is placed there: it is suspect. Counted from the first thing that went wrong."},
		{key: "health.lost_after", value: duration(&c.LostAfter), def: one("15m"),
			doc: "How long a cluster must not answer before it counts as lost. Counted as far as this server was running and looking."},

		{key: "registry.public_host", value: text(&c.RegistryHost), env: "REGISTRY_PUBLIC_HOST", sample: "registry.example:5000",
			doc: "Address under which every cluster reaches the image registry. For setup scripts; the Jobs' own credentials are jobs.pull_secrets."},
		{key: "registry.user", value: text(&c.RegistryUser), env: "REGISTRY_USER",
			doc: "User of that registry."},
		{key: "registry.password", value: text(&c.RegistryPassword), env: "REGISTRY_PASSWORD", secret: true,
			doc: "Password of that registry."},
	}
}

func one(s string) []string { return []string{s} }

func (s setting) envName() string {
	if s.env != "" {
		return s.env
	}
	return "NAGELFLUH_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// flagName is empty for settings that have no flag: a secret on a command line is seen by everybody on the machine.
func (s setting) flagName() string {
	if s.flag != "" {
		return s.flag
	}
	if s.secret {
		return ""
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.key)
}
