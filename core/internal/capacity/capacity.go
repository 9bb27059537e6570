// Package capacity reads what the nodes of a cluster hold and what of it is free.
package capacity

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// Seen is one reading.
type Seen struct {
	// Capacity is nil when the account may not list nodes: unknown, which is not zero.
	Capacity *cluster.Capacity
	// Attempts are those with a pod on a node; nil with Capacity.
	Attempts map[string]bool
	// Narrow says that the pods of the job namespace alone were counted: what others use is unseen.
	Narrow bool
}

// Read reads nodes, and pods of all namespaces, else of the job namespace. Narrow keeps it from asking for those of all
// when that was refused a moment ago.
func Read(ctx context.Context, client *kube.Client, narrow bool) (Seen, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	nodes, err := client.Probe().CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		if kube.Classify(err) == kube.Permissions {
			return Seen{Narrow: narrow}, nil
		}
		return Seen{}, err
	}
	o := metav1.ListOptions{ResourceVersion: "0", FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	var pods *corev1.PodList
	if !narrow {
		pods, err = client.Probe().CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
		narrow = kube.Classify(err) == kube.Permissions
	}
	if narrow {
		pods, err = client.Probe().CoreV1().Pods(client.Namespace).List(ctx, o)
	}
	if err != nil {
		return Seen{}, err
	}
	capacity, attempts := count(nodes.Items, pods.Items)
	capacity.ObservedAt = now
	return Seen{Capacity: capacity, Attempts: attempts, Narrow: narrow}, nil
}

// count adds up what schedulable nodes hold and what pods take of it.
func count(nodes []corev1.Node, pods []corev1.Pod) (*cluster.Capacity, map[string]bool) {
	free := map[string]map[string]int64{}
	out := &cluster.Capacity{Resources: map[string]cluster.ResourceCapacity{}}
	for i := range nodes {
		node := &nodes[i]
		if !schedulable(node) {
			continue
		}
		out.Nodes++
		mine := map[string]int64{}
		for name, q := range node.Status.Allocatable {
			n := units(name, q)
			mine[string(name)] = n
			r := out.Resources[string(name)]
			r.NodeMax = max(r.NodeMax, n)
			r.Total += n
			out.Resources[string(name)] = r
		}
		free[node.Name] = mine
	}

	counted := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if attempt := pod.Labels[job.LabelAttempt]; attempt != "" {
			counted[attempt] = true
		}
		mine := free[pod.Spec.NodeName]
		for name, n := range requests(pod) {
			if _, has := mine[name]; has {
				mine[name] -= n
			}
		}
	}

	first := map[string]bool{}
	for _, mine := range free {
		for name, n := range mine {
			r := out.Resources[name]
			r.Free += n
			if !first[name] || n > r.NodeFreeMax {
				r.NodeFreeMax, first[name] = n, true
			}
			out.Resources[name] = r
		}
	}
	return out, counted
}

// schedulable says whether our pods, which tolerate nothing, can go to a node. A taint named after an extended resource
// of the node is the exception: clusters that set it let pods that ask for the resource pass.
func schedulable(n *corev1.Node) bool {
	if n.Spec.Unschedulable || n.DeletionTimestamp != nil {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if _, own := n.Status.Allocatable[corev1.ResourceName(t.Key)]; own && strings.Contains(t.Key, "/") {
			continue
		}
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// units are millicores for cpu and whole units for all else.
func units(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// requests is what a pod takes of its node, as the scheduler counts: the containers that run together, or an init
// container with the sidecars before it if that is more, plus the overhead; a request of the whole pod stands for both.
func requests(p *corev1.Pod) map[string]int64 {
	sum := map[string]int64{}
	add(sum, containersOf(p.Spec.Containers))
	peak, sidecars := map[string]int64{}, map[string]int64{}
	for _, c := range p.Spec.InitContainers {
		own := listOf(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(sum, own)
			add(sidecars, own)
			own = map[string]int64{}
		}
		add(own, sidecars)
		most(peak, own)
	}
	most(sum, peak)
	if p.Spec.Resources != nil {
		for name, n := range listOf(p.Spec.Resources.Requests) {
			sum[name] = n
		}
	}
	add(sum, listOf(p.Spec.Overhead))
	sum[string(corev1.ResourcePods)] = 1
	return sum
}

func containersOf(containers []corev1.Container) map[string]int64 {
	sum := map[string]int64{}
	for _, c := range containers {
		add(sum, listOf(c.Resources.Requests))
	}
	return sum
}

func listOf(list corev1.ResourceList) map[string]int64 {
	out := make(map[string]int64, len(list))
	for name, q := range list {
		out[string(name)] = units(name, q)
	}
	return out
}

func add(to, from map[string]int64) {
	for name, n := range from {
		to[name] += n
	}
}

func most(to, from map[string]int64) {
	for name, n := range from {
		to[name] = max(to[name], n)
	}
}
