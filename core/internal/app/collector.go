package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// collector reads what the database knows at each scrape.
type collector struct {
	db                      *store.DB
	attempts, pinned, state *prometheus.Desc
}

func newCollector(db *store.DB) *collector {
	return &collector{
		db:       db,
		attempts: prometheus.NewDesc("nagelfluh_attempts", "Attempts that have not ended, by state.", []string{"state"}, nil),
		pinned:   prometheus.NewDesc("nagelfluh_cluster_attempts", "Attempts on each cluster that have not ended.", []string{"cluster", "name"}, nil),
		state:    prometheus.NewDesc("nagelfluh_cluster_health", "1 for the health that each cluster has.", []string{"cluster", "name", "health"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.attempts
	ch <- c.pinned
	ch <- c.state
}

const scrapeLimit = 5 * time.Second

// Collect implements prometheus.Collector. What cannot be read is left out.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if states, err := c.db.LiveStates(ctx); err == nil {
		for _, s := range process.States {
			if !s.Terminal() {
				gauge(c.attempts, float64(states[s]), string(s))
			}
		}
	}
	all, err := c.db.Clusters(ctx)
	if err != nil {
		return
	}
	live, err := c.db.LiveCounts(ctx)
	if err != nil {
		return
	}
	for _, row := range all {
		health := row.Observed.Health
		if health == "" {
			health = cluster.New
		}
		gauge(c.pinned, float64(live[row.ID]), row.ID, row.Name)
		gauge(c.state, 1, row.ID, row.Name, string(health))
	}
}
