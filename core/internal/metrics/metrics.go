// Package metrics counts what the server does and serves it to Prometheus.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// Metrics is one set of counters. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.HistogramVec
	plugins    *prometheus.HistogramVec
	placements *prometheus.CounterVec
	clusters   *prometheus.HistogramVec
	ended      *prometheus.CounterVec
}

// fast are the bounds in seconds of calls that usually take milliseconds.
var fast = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New returns an empty set, with those of the Go runtime and of the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nagelfluh_http_request_seconds", Help: "Duration of API requests; streams count until they end.", Buckets: fast,
		}, []string{"method", "route", "status"}),
		plugins: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nagelfluh_plugin_call_seconds", Help: "Duration of plugin calls.", Buckets: fast,
		}, []string{"plugin", "method", "result"}),
		placements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nagelfluh_placements_total", Help: "Decisions by outcome, by the rule and the plugin that decided, and by cluster id.",
		}, []string{"outcome", "rule", "plugin", "cluster"}),
		clusters: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nagelfluh_cluster_call_seconds", Help: "Duration of calls to clusters, by cluster id.", Buckets: fast,
		}, []string{"cluster", "verb", "code"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nagelfluh_attempts_ended_total", Help: "Attempts that ended since the server started, by state.",
		}, []string{"state"}),
	}
	m.registry.MustRegister(m.requests, m.plugins, m.placements, m.clusters, m.ended,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Register adds a collector that is asked at each scrape.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Request counts an API request.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// PluginCall counts a call of a plugin.
func (m *Metrics) PluginCall(plugin, method string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.plugins.WithLabelValues(plugin, method, result).Observe(took.Seconds())
}

// Placement counts a decision.
func (m *Metrics) Placement(d placement.Decision) {
	m.placements.WithLabelValues(string(d.Outcome), string(d.Rule), d.Plugin, d.ClusterID).Inc()
}

// ClusterCall counts a call to a cluster; code is the HTTP status, or "error" when no answer came.
func (m *Metrics) ClusterCall(clusterID, verb, code string, took time.Duration) {
	m.clusters.WithLabelValues(clusterID, verb, code).Observe(took.Seconds())
}

// Ended counts an attempt that reached a terminal state.
func (m *Metrics) Ended(state string) { m.ended.WithLabelValues(state).Inc() }

// Handler serves the counters in the format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
