package capacity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

func TestCount(t *testing.T) {
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	nodes := []corev1.Node{
		node("n1", map[string]string{"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"}, taint("nvidia.com/gpu")),
		node("n2", map[string]string{"cpu": "2500m", "memory": "4Gi", "pods": "10"}),
		node("n3", map[string]string{"cpu": "64"}, cordoned),
		node("n4", map[string]string{"cpu": "64"}, notReady),
		node("n5", map[string]string{"cpu": "64"}, taint("node-role.kubernetes.io/control-plane")),
	}
	always := corev1.ContainerRestartPolicyAlways
	init := func(list map[string]string, policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: quantities(list)}})
		}
	}
	pods := []corev1.Pod{
		pod("n1", map[string]string{"cpu": "1", "nvidia.com/gpu": "2"}),
		pod("n2", map[string]string{"cpu": "1"}, init(map[string]string{"cpu": "500m"}, &always), init(map[string]string{"cpu": "700m"}, nil)),
		pod("n2", map[string]string{"cpu": "2"}), // overcommitted
		pod("n2", map[string]string{"cpu": "8"}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("", map[string]string{"cpu": "8"}),
		pod("n3", map[string]string{"cpu": "8"}),
	}
	got, _ := count(nodes, pods)
	want := &cluster.Capacity{Nodes: 2, Resources: map[string]cluster.ResourceCapacity{
		"cpu":            {NodeMax: 4000, NodeFreeMax: 3000, Total: 6500, Free: 2000},
		"memory":         {NodeMax: 8 << 30, NodeFreeMax: 8 << 30, Total: 12 << 30, Free: 12 << 30},
		"pods":           {NodeMax: 10, NodeFreeMax: 9, Total: 20, Free: 17},
		"nvidia.com/gpu": {NodeMax: 8, NodeFreeMax: 6, Total: 8, Free: 6},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if none, _ := count(nil, nil); none.Nodes != 0 || none.Resources == nil {
		t.Errorf("no nodes: %+v", none)
	}
}

func node(name string, list map[string]string, changes ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = quantities(list)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range changes {
		f(&n)
	}
	return n
}

func quantities(list map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func pod(node string, list map[string]string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: quantities(list)}}}
	for _, f := range changes {
		f(&p)
	}
	return p
}
