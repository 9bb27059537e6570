package main

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/sdk/conformance"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nvidia = "nvidia.com/gpu"

// node is what the largest node of a cluster has, and how much of it is free.
type node map[string][2]int64

// cluster makes one whose nodes are known: a single node.
func cluster(name string, has node) selector.Cluster {
	c := selector.Cluster{ID: "id-" + name, Name: name, State: "ready", Capacity: &selector.Capacity{
		ObservedAt: time.Now(), Nodes: 1, Resources: map[string]selector.Resource{
			"cpu": {NodeMax: 64000, NodeFreeMax: 64000, Total: 64000, Free: 64000},
		},
	}}
	for resource, amount := range has {
		c.Capacity.Resources[resource] = selector.Resource{NodeMax: amount[0], NodeFreeMax: amount[1], Total: amount[0], Free: amount[1]}
	}
	return c
}

// unread makes a cluster whose nodes are not known.
func unread(name string, labels map[string]string) selector.Cluster {
	return selector.Cluster{ID: "id-" + name, Name: name, State: "ready", Labels: labels}
}

func loaded(c selector.Cluster, attempts int32) selector.Cluster {
	c.ActiveAttempts = attempts
	return c
}

func down(c selector.Cluster, reason string) selector.Ineligible {
	return selector.Ineligible{Cluster: c, Reason: reason}
}

var (
	plain     = cluster("plain", nil)
	eight     = cluster("gpu", node{nvidia: {8, 8}})
	half      = cluster("half", node{nvidia: {8, 4}})
	busy      = cluster("busy", node{nvidia: {8, 0}})
	over      = cluster("over", node{nvidia: {8, -8}})
	sixteen   = cluster("big", node{nvidia: {16, 16}})
	unknown   = unread("dark", nil)
	vouched   = unread("vouched", map[string]string{"nagelfluh.io/gpu": "true"})
	refusedTo = unread("no", map[string]string{"nagelfluh.io/gpu": "false"})
)

func TestSelect(t *testing.T) {
	tests := map[string]struct {
		asks       map[string]string
		candidates []selector.Cluster
		ineligible []selector.Ineligible // nil: the host does not say
		want       selector.Answer
	}{
		"no GPU": {
			asks: map[string]string{"cpu": "1"}, candidates: []selector.Cluster{eight},
			want: selector.Abstain("asks for no GPU"),
		},
		"zero GPUs": {
			asks: map[string]string{nvidia: "0"}, candidates: []selector.Cluster{eight},
			want: selector.Abstain("asks for no GPU"),
		},
		"one cluster has them": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{plain, eight, unknown},
			want: selector.Select("id-gpu", "needs 1 nvidia.com/gpu; gpu has room for it on one node, with 8 of 8 nvidia.com/gpu free"),
		},
		"the least loaded of those with room": {
			asks: map[string]string{nvidia: "2"}, candidates: []selector.Cluster{busy, half, eight},
			want: selector.Select("id-gpu", "needs 2 nvidia.com/gpu; gpu has room for it on one node, with 8 of 8 nvidia.com/gpu free"),
		},
		"the fewer attempts among equals": {
			asks: map[string]string{nvidia: "2"}, candidates: []selector.Cluster{loaded(half, 3), loaded(cluster("half2", node{nvidia: {8, 4}}), 2)},
			want: selector.Select("id-half2", "needs 2 nvidia.com/gpu; half2 has room for it on one node, with 4 of 8 nvidia.com/gpu free"),
		},
		"the admin's order among equals": {
			asks: map[string]string{nvidia: "2"}, candidates: []selector.Cluster{half, cluster("half2", node{nvidia: {8, 4}})},
			want: selector.Select("id-half", "needs 2 nvidia.com/gpu; half has room for it on one node, with 4 of 8 nvidia.com/gpu free"),
		},
		"busy: queued on the least loaded": {
			asks: map[string]string{nvidia: "8"}, candidates: []selector.Cluster{over, busy, half, vouched},
			want: selector.Select("id-half", "needs 8 nvidia.com/gpu; it is queued on half, the least loaded of the clusters that can hold it, with 4 of 8 nvidia.com/gpu free"),
		},
		"overcommitted": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{over, busy},
			want: selector.Select("id-busy", "needs 1 nvidia.com/gpu; it is queued on busy, the least loaded of the clusters that can hold it, with 0 of 8 nvidia.com/gpu free"),
		},
		"no node could ever hold it": {
			asks: map[string]string{nvidia: "16"}, candidates: []selector.Cluster{plain, eight},
			want: selector.Refuse("needs 16 nvidia.com/gpu on one node; most is 8 (gpu)"),
		},
		"counts are plain numbers": {
			asks: map[string]string{nvidia: "1k"}, candidates: []selector.Cluster{plain, eight},
			want: selector.Refuse("needs 1000 nvidia.com/gpu on one node; most is 8 (gpu)"),
		},
		"a cluster that could is cordoned": {
			asks: map[string]string{nvidia: "16"}, candidates: []selector.Cluster{plain, eight}, ineligible: []selector.Ineligible{down(sixteen, "cordoned")},
			want: selector.Wait("needs 16 nvidia.com/gpu; big can hold it, but takes no jobs now: cordoned"),
		},
		"the only GPU cluster does not answer": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{plain}, ineligible: []selector.Ineligible{down(eight, "not answering")},
			want: selector.Wait("needs 1 nvidia.com/gpu; gpu can hold it, but takes no jobs now: not answering"),
		},
		"an opted-in cluster does not answer": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{plain}, ineligible: []selector.Ineligible{down(vouched, "not answering")},
			want: selector.Wait("needs 1 nvidia.com/gpu; vouched may have it, but takes no jobs now: not answering"),
		},
		"too small even with those that are down": {
			asks: map[string]string{nvidia: "32"}, candidates: []selector.Cluster{eight}, ineligible: []selector.Ineligible{down(sixteen, "cordoned")},
			want: selector.Refuse("needs 32 nvidia.com/gpu on one node; most is 16 (big)"),
		},
		"another vendor's, and none is anywhere": {
			asks: map[string]string{"amd.com/gpu": "2"}, candidates: []selector.Cluster{plain, eight}, ineligible: []selector.Ineligible{},
			want: selector.Refuse("needs 2 amd.com/gpu on one node; no known cluster has any"),
		},
		"another vendor's, and the host does not say what is down": {
			asks: map[string]string{"amd.com/gpu": "2"}, candidates: []selector.Cluster{plain, eight},
			want: selector.Wait("needs 2 amd.com/gpu on one node; no known cluster has any; a cluster that takes no jobs now might have it"),
		},
		"another vendor's": {
			asks: map[string]string{"amd.com/gpu": "2"}, candidates: []selector.Cluster{eight, cluster("red", node{"amd.com/gpu": {4, 4}})},
			want: selector.Select("id-red", "needs 2 amd.com/gpu; red has room for it on one node, with 4 of 4 amd.com/gpu free"),
		},
		"several kinds": {
			asks: map[string]string{nvidia: "1", "nvidia.com/mig-1g.5gb": "2"}, candidates: []selector.Cluster{eight, cluster("mig", node{nvidia: {2, 2}, "nvidia.com/mig-1g.5gb": {7, 3}})},
			want: selector.Select("id-mig", "needs 1 nvidia.com/gpu and 2 nvidia.com/mig-1g.5gb; mig has room for it on one node, with 2 of 2 nvidia.com/gpu free and 3 of 7 nvidia.com/mig-1g.5gb free"),
		},
		"several kinds, never together": {
			asks: map[string]string{nvidia: "1", "gpu.intel.com/i915": "1"}, candidates: []selector.Cluster{eight, cluster("blue", node{"gpu.intel.com/i915": {1, 1}})},
			want: selector.Refuse("needs 1 gpu.intel.com/i915 and 1 nvidia.com/gpu on one node; gpu lacks gpu.intel.com/i915 (at most 0), blue lacks nvidia.com/gpu (at most 0)"),
		},
		"enough GPUs, too little memory": {
			asks: map[string]string{nvidia: "1", "memory": "1Ti"}, candidates: []selector.Cluster{cluster("gpu", node{nvidia: {8, 8}, "memory": {512 << 30, 1 << 30}})},
			want: selector.Refuse("needs 1Ti memory on one node; most is 512Gi (gpu)"),
		},
		"CPUs are elsewhere": {
			asks: map[string]string{nvidia: "1", "cpu": "96"}, candidates: []selector.Cluster{eight, cluster("cpu", node{"cpu": {128000, 128000}})},
			want: selector.Refuse("needs 1 nvidia.com/gpu and 96 cpu on one node; gpu lacks cpu (at most 64), cpu lacks nvidia.com/gpu (at most 0)"),
		},
		"another extended resource": {
			asks: map[string]string{nvidia: "1", "example.org/fpga": "1"}, candidates: []selector.Cluster{eight}, ineligible: []selector.Ineligible{},
			want: selector.Refuse("needs 1 example.org/fpga on one node; no known cluster has any"),
		},
		"room in GPUs, none in CPUs now": {
			asks: map[string]string{nvidia: "1", "cpu": "8"}, candidates: []selector.Cluster{cluster("tight", node{nvidia: {8, 8}, "cpu": {8000, 100}}), half},
			want: selector.Select("id-half", "needs 1 nvidia.com/gpu; half has room for it on one node, with 4 of 8 nvidia.com/gpu free"),
		},
		"memory that is not reported": {
			asks: map[string]string{nvidia: "1", "memory": "1Gi"}, candidates: []selector.Cluster{eight},
			want: selector.Select("id-gpu", "needs 1 nvidia.com/gpu; gpu has room for it on one node, with 8 of 8 nvidia.com/gpu free"),
		},
		"unknown, opted in": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{plain, unknown, loaded(vouched, 5), loaded(unread("vouched2", vouched.Labels), 4)},
			want: selector.Select("id-vouched2", "needs 1 nvidia.com/gpu; the nodes of vouched2 cannot be read, and its label nagelfluh.io/gpu=true says that it takes GPU jobs"),
		},
		"unknown, not opted in": {
			asks: map[string]string{nvidia: "1"}, candidates: []selector.Cluster{plain, unknown, refusedTo},
			want: selector.Wait("needs 1 nvidia.com/gpu on one node; no known cluster has any; what dark, no can hold is not known, label it nagelfluh.io/gpu=true if it takes GPU jobs"),
		},
		"known too small, unknown not opted in": {
			asks: map[string]string{nvidia: "16"}, candidates: []selector.Cluster{eight, unknown},
			want: selector.Wait("needs 16 nvidia.com/gpu on one node; most is 8 (gpu); what dark can hold is not known, label it nagelfluh.io/gpu=true if it takes GPU jobs"),
		},
		"no candidate": {
			asks: map[string]string{nvidia: "1"},
			want: selector.Wait("needs 1 nvidia.com/gpu; there is no cluster to choose from"),
		},
	}
	p := plugintest.Selector(t, &gpuSelector{}, `{}`)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := p.SelectCluster(t.Context(), selector.Request{
				Version: selector.Version{Requests: test.asks, Limits: test.asks}, Candidates: test.candidates,
				Ineligible: test.ineligible, IneligibleKnown: test.ineligible != nil,
			})
			if err != nil || got != test.want {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, test.want)
			}
		})
	}
}

func TestLimitAlone(t *testing.T) {
	p := plugintest.Selector(t, &gpuSelector{}, `{}`)
	got, err := p.SelectCluster(t.Context(), selector.Request{
		Version: selector.Version{Limits: map[string]string{nvidia: "16"}}, Candidates: []selector.Cluster{eight},
	})
	if err != nil || got.Kind != selector.Refused {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDefaultPattern(t *testing.T) {
	g := &gpuSelector{}
	if err := g.Configure(t.Context(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]bool{
		nvidia: true, "nvidia.com/gpu.shared": true, "nvidia.com/mig-3g.20gb": true, "amd.com/gpu": true, "gpu.intel.com/xe": true,
		"example.org/gpu": true, "aliyun.com/gpu-mem": true,
		"cpu": false, "memory": false, "gpu": false, "example.org/fpga": false, "example.org/gpus-of-others": false, "rdma/hca": false,
	} {
		if got := g.rules.pattern.MatchString(resource); got != want {
			t.Errorf("%s: %t", resource, got)
		}
	}
}

func TestConfigured(t *testing.T) {
	p := plugintest.Selector(t, &gpuSelector{}, `{"resource_pattern": "^example\\.org/npu$", "opt_in_label": "accelerators=yes"}`)
	got, err := p.SelectCluster(t.Context(), selector.Request{
		Version:    selector.Version{Requests: map[string]string{"example.org/npu": "1"}},
		Candidates: []selector.Cluster{unread("a", map[string]string{"accelerators": "yes"})},
	})
	if err != nil || got.ClusterID != "id-a" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = p.SelectCluster(t.Context(), selector.Request{
		Version: selector.Version{Requests: map[string]string{nvidia: "1"}}, Candidates: []selector.Cluster{eight},
	})
	if err != nil || got.Kind != selector.Abstained {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{`{"resource_pattern": "("}`, `{"resource_pattern": ""}`, `{"opt_in_label": "yes"}`} {
		if err := (&gpuSelector{}).Configure(t.Context(), []byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		conformance.Selector(t, conformance.InMemory(info, func() any { return &gpuSelector{} }))
	})
	t.Run("binary", func(t *testing.T) { conformance.Selector(t, conformance.Binary(conformance.Build(t))) })
}
