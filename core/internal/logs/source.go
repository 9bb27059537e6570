package logs

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Clients is a Source that reads by the client of each cluster.
type Clients func(ctx context.Context, clusterID string) (kubernetes.Interface, error)

// Logs implements Source.
func (c Clients) Logs(ctx context.Context, clusterID, namespace, pod, container string, o SourceOptions) (io.ReadCloser, error) {
	client, err := c(ctx, clusterID)
	if err != nil {
		return nil, err
	}
	options := &corev1.PodLogOptions{Container: container, Follow: o.Follow, Previous: o.Previous, Timestamps: true}
	if !o.Since.IsZero() {
		since := metav1.NewTime(o.Since)
		options.SinceTime = &since
	}
	return client.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
}
