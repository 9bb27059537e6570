package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is for a machine that is busy with other things: an idle one needs a
// few seconds.
const patience = 3 * time.Minute

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Paths.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("cluster %s: read its kubeconfig: %w", c.Spec.Name, err)
	}
	config.Timeout = 5 * time.Second
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// waitAPI returns when the API server says it is ready.
func (c *Cluster) waitAPI(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.poll(ctx, "the API server", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// waitUsable returns when a Job created now would run.
func (c *Cluster) waitUsable(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.poll(ctx, "the nodes", func(ctx context.Context) error {
		// Without the default ServiceAccount every pod is refused.
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
					ready++
				}
			}
		}
		if ready < c.Spec.Nodes {
			return fmt.Errorf("%d of %d nodes are ready", ready, c.Spec.Nodes)
		}
		return nil
	})
}

func (c *Cluster) poll(ctx context.Context, what string, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		if err := c.failed(); err != nil {
			return fmt.Errorf("cluster %s failed while waiting for %s: %w", c.Spec.Name, what, err)
		}
		if err := probe(ctx); err == nil {
			return nil
		} else if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cluster %s: %s not ready (%w): %v; see the logs in %s/logs", c.Spec.Name, what, ctx.Err(), last, c.Paths.Dir)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
