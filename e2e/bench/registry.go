package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// registry: what the clients of clusters cost in the server, by the benchmarks of package kube: only they can see it.
func registry(ctx context.Context, b *bench) ([]row, error) {
	root, err := stack.Root()
	if err != nil {
		return nil, err
	}
	quick := "-benchtime=1s"
	if b.quick {
		quick = "-benchtime=10x"
	}
	got, err := benchmarks(ctx, b, root, "kube", "RegistryHit|Build|Rotation", quick)
	if err != nil {
		return nil, err
	}
	many, err := benchmarks(ctx, b, root, "kube", "ThousandClusters", "-benchtime=1x")
	if err != nil {
		return nil, err
	}
	took := func(name string) string {
		return time.Duration(got[name]["ns/op"]).Round(10 * time.Nanosecond).String()
	}
	held, resident, start := many["ThousandClusters"]["KB/cluster"], many["ThousandClusters"]["resident-KB/cluster"], many["ThousandClusters"]["s-to-start"]
	return []row{
		{name: "(g) client of a connected cluster", result: took("RegistryHit")},
		{name: "(g) client built from a provider's answer", result: took("Build")},
		{name: "(g) edited credentials swapped in", result: took("Rotation")},
		{
			name: "(g) memory per cluster, connected and probed twice", ours: fmt.Sprintf("heap and stacks %.0f KB", held),
			result: fmt.Sprintf("resident %.0f KB", resident), aim: "≤ 300 KB", met: max(held, resident) <= 300,
		},
		{name: "(g) 1,000 clusters on a stub connected and probed", result: fmt.Sprintf("%.1f s", start), aim: "≤ 5 s", met: start <= 5},
	}, nil
}

// benchmarks runs some of a package of the core and returns their figures by name and unit; one with parts has a figure for
// each part that was not skipped.
func benchmarks(ctx context.Context, b *bench, root, pkg, which, times string) (map[string]map[string]float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-run=^$", "-bench=^Benchmark("+which+")$", times, "-timeout=1h", "./internal/"+pkg)
	cmd.Dir = filepath.Join(root, "core")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s: %w\n%s", which, err, out)
	}
	b.detail("%s", out)
	got := map[string]map[string]float64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name, found := strings.CutPrefix(line, "Benchmark")
		if !found || len(fields) < 4 {
			continue
		}
		name, _, _ = strings.Cut(strings.Fields(name)[0], "-") // without the number of processors
		got[name] = map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 { // value, unit
			if got[name][fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
		}
	}
	for name := range strings.SplitSeq(which, "|") {
		part := func(n string) bool { return n == name || strings.HasPrefix(n, name+"/") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), part) {
			return nil, fmt.Errorf("no figures of %s in\n%s", name, out)
		}
	}
	return got, nil
}
