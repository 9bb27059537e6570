package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// settled is how long the server is left alone before its memory is looked at.
const settled = 10 * time.Second

// memory: resident memory of core and of each plugin, idle and with many active attempts.
func memory(ctx context.Context, b *bench) ([]row, error) {
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	idle, names, err := w.resident(ctx)
	if err != nil {
		return nil, err
	}
	n := b.n(1000)
	items := make([]map[string]any, n)
	for i := range items {
		items[i] = submission(fmt.Sprintf("active-%04d", i), i%2, "sleep", "3600")
	}
	seen, err := look(ctx, w.namespace, w.clients, pods, runningVersion)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	if err := w.submitBulk(ctx, items); err != nil {
		return nil, err
	}
	if _, err := seen.wait(ctx, n, 4*time.Minute); err != nil {
		return nil, err
	}
	running := 0
	limit, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	err = stack.Until(limit, "every attempt runs", func() (bool, error) {
		running = 0
		for _, c := range clusterNames {
			seen, err := w.countRunning(limit, c)
			if err != nil {
				return false, err
			}
			running += seen
		}
		return running == n, fmt.Errorf("%d of %d run", running, n)
	})
	if running < n {
		return nil, err
	}
	// What the burst took is given back in the seconds after it.
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settled):
	}
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Pid())); err == nil {
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "Rss") || strings.HasPrefix(line, "Threads") {
				b.detail("core: %s", strings.Join(strings.Fields(line), " "))
			}
		}
	}
	busy, _, err := w.resident(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, name := range names {
		r := row{
			name:   fmt.Sprintf("(e) resident memory of %s, with %d running", name, n),
			ours:   fmt.Sprintf("idle %.0f MB", idle[name]),
			result: fmt.Sprintf("%.0f MB", busy[name]),
		}
		if name == "core" {
			r.aim, r.met = "≤ 150 MB", busy[name] <= 150
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (w *world) countRunning(ctx context.Context, cluster string) (int, error) {
	id := "default-cluster-00000000-0000-0000-0000-000000000000"
	if cluster != "main" {
		id = cluster
	}
	n, cursor := 0, ""
	for {
		var page struct {
			Items      []struct{}
			NextCursor string `json:"next_cursor"`
		}
		if err := w.Get(ctx, "/versions?limit=200&state=running&cluster="+id+"&cursor="+cursor, &page); err != nil {
			return 0, err
		}
		n += len(page.Items)
		if cursor = page.NextCursor; cursor == "" {
			return n, nil
		}
	}
}

// resident returns the resident memory in MB of the server and its plugins by name, and the names in order.
func (w *world) resident(ctx context.Context) (map[string]float64, []string, error) {
	var list struct {
		Items []struct {
			Name string
			Pid  int
		}
	}
	if err := w.Get(ctx, "/plugins", &list); err != nil {
		return nil, nil, err
	}
	out, names := map[string]float64{}, []string{"core"}
	pids := map[string]int{"core": w.Pid()}
	for _, p := range list.Items {
		names = append(names, p.Name)
		pids[p.Name] = p.Pid
	}
	for name, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, nil, fmt.Errorf("memory of %s: %w", name, err)
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kb, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					return nil, nil, err
				}
				out[name] = float64(kb) / 1000
			}
		}
	}
	return out, names, nil
}
