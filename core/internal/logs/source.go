package logs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	body, err := client.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
	if gone(err) && o.Identity != "" {
		// By the same client, so of the cluster that has just answered.
		if stranger := meet(ctx, client, namespace, o.Identity); stranger != nil {
			return nil, stranger
		}
	}
	return body, err
}

// identityTimeout bounds the question for a cluster's identity.
const identityTimeout = 20 * time.Second

// meet returns an error when another cluster than the one of that identity answers, or when that cannot be told now. What
// the account may not see is no proof of a change.
func meet(ctx context.Context, client kubernetes.Interface, namespace, identity string) error {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	seen := false
	for _, name := range []string{metav1.NamespaceSystem, namespace} {
		ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && slices.Contains(strings.Fields(identity), string(ns.UID)):
			return nil
		case err == nil:
			seen = true
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return fmt.Errorf("read the identity of the cluster: %w", err)
		}
	}
	if seen {
		return errStranger
	}
	return nil
}
