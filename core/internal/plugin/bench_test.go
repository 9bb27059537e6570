package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	domain "github.com/nagelfluh/nagelfluh/core/internal/process"
)

// benchChain starts five selectors made with the sdk that all abstain.
func benchChain(b *testing.B) *Host {
	b.Helper()
	r := newRig(b)
	first := filepath.Join(r.dir, "selector-0")
	buildOutside(b, "selector", first)
	for i := 1; i < 5; i++ {
		if err := os.Link(first, filepath.Join(r.dir, fmt.Sprintf("selector-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	h := r.start(r.options())
	for _, s := range h.List() {
		if s.State != Running {
			b.Fatalf("%+v", s)
		}
	}
	return h
}

// benchCandidates are clusters with capacity.
func benchCandidates(n int) []placement.Candidate {
	out := make([]placement.Candidate, n)
	for i := range out {
		out[i] = placement.Candidate{ID: fmt.Sprintf("cluster-%02d", i), Name: fmt.Sprintf("Cluster %d", i), Type: "kubeconfig", Health: cluster.Ready,
			Labels: map[string]string{"zone": "eu", "tier": "batch"}, Capacity: &cluster.Capacity{ObservedAt: time.Now(), Nodes: 10,
				Resources: map[string]cluster.ResourceCapacity{"cpu": {NodeMax: 64000}, "memory": {NodeMax: 1 << 38}, "nvidia.com/gpu": {NodeMax: 8}}}}
	}
	return out
}

// report adds the percentiles of the durations to the benchmark's figures.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
}

// BenchmarkChain5 asks five selectors about one placement, each time with a new snapshot.
func BenchmarkChain5(b *testing.B) {
	request := placement.Request{User: placement.User{ID: "u", Name: "u"}, Project: placement.Project{ID: "p", Name: "p"},
		Process: domain.Process{ID: "x", Name: "x", Type: "other"},
		Version: domain.Version{ID: "v", Spec: domain.Spec{Image: "busybox", Requests: map[string]string{"cpu": "1", "memory": "1Gi"}}}}
	for _, clusters := range []int{2, 20} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			h := benchChain(b)
			candidates := benchCandidates(clusters)
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				s := &placement.Snapshot{Candidates: candidates}
				for _, selector := range h.Selectors() {
					if a, err := selector.SelectCluster(b.Context(), s, request); err != nil || a.Kind != placement.Abstained {
						b.Fatalf("%+v %v", a, err)
					}
				}
				took = append(took, time.Since(begun))
			}
			report(b, took)
		})
	}
}

// BenchmarkEmptyCall is what to compare it with: one gRPC call that carries nothing, to the same kind of process.
func BenchmarkEmptyCall(b *testing.B) {
	h := benchChain(b)
	in, _, _ := h.slots[0].current()
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		if _, err := in.health.Check(b.Context(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	report(b, took)
}

// BenchmarkEmptyChain5 makes an empty call to each of five processes in turn, as the chain does.
func BenchmarkEmptyChain5(b *testing.B) {
	h := benchChain(b)
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		for _, s := range h.slots {
			in, _, _ := s.current()
			if _, err := in.health.Check(b.Context(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"}); err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(begun))
	}
	report(b, took)
}
