package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

const (
	manyClusters = 200
	deadClusters = 50
)

var serverOf = regexp.MustCompile(`(server"?: *"?)https://[^"\s]+`)

// lists: what the list of many clusters and the page of one take, while a quarter of them does not answer.
func lists(ctx context.Context, b *bench) ([]row, error) {
	alive, err := os.ReadFile(b.clusters.Kubeconfig("gpu"))
	if err != nil {
		return nil, err
	}
	dead := serverOf.ReplaceAllString(string(alive), "${1}https://127.0.0.1:1") // nothing listens there
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	for i := range manyClusters - len(clusterNames) {
		name, config := fmt.Sprintf("alive-%03d", i), string(alive)
		if i < deadClusters {
			name, config = fmt.Sprintf("dead-%03d", i), dead
		}
		// All that answer are one and the same cluster, and nobody waits for those that do not.
		var made struct{ ID string }
		if err := w.post(ctx, "/clusters?connection_test=skip", map[string]any{
			"name": name, "type": "kubeconfig", "provider_config": map[string]string{"kubeconfig": config}, "labels": map[string]string{"zone": "a"},
		}, &made); err != nil {
			return nil, err
		}
	}
	known, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := stack.Until(known, "the health of every cluster is known", func() (bool, error) {
		var list struct {
			Items []struct {
				Observed struct{ Health string }
			}
		}
		if err := w.Get(known, "/clusters", &list); err != nil {
			return false, err
		}
		count := map[string]int{}
		for _, c := range list.Items {
			count[c.Observed.Health]++
		}
		away := count["suspect"] + count["lost"]
		return away == deadClusters && count["ready"]+count["degraded"] == manyClusters-deadClusters, fmt.Errorf("health: %v", count)
	}); err != nil {
		return nil, err
	}
	var rows []row
	for _, page := range []struct{ name, path string }{
		{"list", "/clusters"}, {"page of one that answers", "/clusters/alive-100"}, {"page of one that does not", "/clusters/dead-010"},
	} {
		took, err := w.gets(ctx, page.path, b.n(1000))
		if err != nil {
			return nil, err
		}
		p99 := quantile(took, 0.99)
		rows = append(rows, row{
			name: fmt.Sprintf("(h) %d clusters, %d dead: %s", manyClusters, deadClusters, page.name), ours: p50p99(took),
			result: "p99 " + ms(p99), aim: "≤ 50 ms", met: p99 <= 50*time.Millisecond,
		})
	}
	return rows, nil
}

// gets reads a page n times, one after the other.
func (w *world) gets(ctx context.Context, path string, n int) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		r, err := w.Do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return nil, err
		}
		if r.Status != http.StatusOK || !json.Valid(r.Body) {
			return nil, fmt.Errorf("GET %s: status %d: %.200s", path, r.Status, r.Body)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
