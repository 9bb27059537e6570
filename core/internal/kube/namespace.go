package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// namespaceTimeout bounds EnsureNamespace and Events.
const namespaceTimeout = 15 * time.Second

// EnsureNamespace makes the client's namespace when it is missing. An account that may neither see nor make namespaces is
// no error: it works in a namespace that an admin made, or the first Job says what is missing.
func EnsureNamespace(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	namespaces := c.Clientset.CoreV1().Namespaces()
	_, err := namespaces.Get(ctx, c.Namespace, metav1.GetOptions{})
	if err == nil || Classify(err) == Permissions {
		return nil
	}
	if Classify(err) != NotFound {
		return fmt.Errorf("look for namespace %s: %w", c.Namespace, err)
	}
	_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: c.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "nagelfluh"},
	}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) || Classify(err) == Permissions {
		return nil
	}
	return fmt.Errorf("make namespace %s: %w", c.Namespace, err)
}

// Events reads the events about one object of the client's namespace: they tell why a Job has no pods.
func (c *Client) Events(ctx context.Context, uid types.UID) ([]corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	list, err := c.Clientset.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(uid)).String(), Limit: 200,
	})
	if err != nil {
		return nil, err
	}
	if list.Items == nil {
		return []corev1.Event{}, nil // read, and none there
	}
	return list.Items, nil
}
