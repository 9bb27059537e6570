package cluster

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var localQueues = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "localqueues"}

// LocalQueue makes a local queue in a namespace of a cluster with Kueue, and
// returns when it admits Jobs. It feeds the cluster queue "default", which has
// all that the nodes have.
func LocalQueue(t testing.TB, c *Cluster, namespace, name string) {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	queues := client.Resource(localQueues).Namespace(namespace)
	queue := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2",
		"kind":       "LocalQueue",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"clusterQueue": "default"},
	}}
	if _, err := queues.Create(ctx, queue, metav1.CreateOptions{}); err != nil {
		t.Fatalf("cluster %s: make the local queue %s: %v", c.Name, name, err)
	}
	for {
		queue, err := queues.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			conditions, _, _ := unstructured.NestedSlice(queue.Object, "status", "conditions")
			for _, condition := range conditions {
				if c, ok := condition.(map[string]any); ok && c["type"] == "Active" && c["status"] == "True" {
					return
				}
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("cluster %s: the local queue %s is not active: %v", c.Name, name, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
