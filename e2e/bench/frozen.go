package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// frozen: the delay from submission to Job on one cluster while the other is frozen (it accepts and never answers; its
// API server goes on, so no CPU is freed), against the same before the freeze.
func frozen(ctx context.Context, b *bench) ([]row, error) {
	gpu, err := os.ReadFile(b.clusters.Kubeconfig("gpu"))
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.New(gpu)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	path := b.dir + "/proxied.kubeconfig"
	if err := os.WriteFile(path, proxy.Kubeconfig(), 0o600); err != nil {
		return nil, err
	}
	w, err := b.serve(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		proxy.Thaw()
		_ = w.close(ctx)
	}()

	// Jobs for the other cluster come in all the while, before and during.
	flood, cancel := context.WithCancel(ctx)
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for i := 0; flood.Err() == nil; i++ {
			_, _ = w.submit(flood, submission(fmt.Sprintf("other-%05d", i), 1, "true"))
			select {
			case <-flood.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	defer func() { cancel(); <-flooded }()

	n := b.n(2000)
	before, err := w.delays(ctx, "before", n)
	if err != nil {
		return nil, err
	}
	proxy.Freeze()
	during, err := w.delays(ctx, "during", n)
	if err != nil {
		return nil, err
	}
	ratio := float64(quantile(during, 0.99)) / float64(quantile(before, 0.99))
	return []row{{
		name: "(f) submit → Job while the other cluster is frozen", ours: p50p99(during), base: "before: " + p50p99(before),
		result: fmt.Sprintf("p99 ratio %.2f", ratio), aim: "≤ 1.50", met: ratio <= 1.5,
	}}, nil
}

// delays submits to the default cluster at a steady rate and returns the times until the Jobs exist.
func (w *world) delays(ctx context.Context, name string, n int) ([]time.Duration, error) {
	seen, err := look(ctx, w.namespace, map[string]*kubernetes.Clientset{"main": w.clients["main"]}, jobs, jobVersion)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	sent, err := w.pace(ctx, n, 40*time.Millisecond, func(i int) map[string]any {
		return submission(fmt.Sprintf("%s-%05d", name, i), 0, "true")
	})
	if err != nil {
		return nil, err
	}
	if err := seen.waitFor(ctx, sent, time.Minute); err != nil {
		return nil, err
	}
	return gaps(sent, seen)
}
