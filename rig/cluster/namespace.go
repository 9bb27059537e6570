package cluster

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace makes a fresh namespace in which pods can be created, and deletes it
// with all that is in it when the test ends (the cluster does so on its own
// time; nothing waits for it).
func Namespace(t testing.TB, c *Cluster) string {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	prefix := notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-")
	prefix = strings.Trim(prefix[:min(len(prefix), 40)], "-")
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cluster %s: make a namespace: %v", c.Name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("cluster %s: delete namespace %s: %v", c.Name, namespace.Name, err)
		}
	})
	// Pods are refused until the namespace has its ServiceAccount.
	for {
		_, err := client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return namespace.Name
		}
		if ctx.Err() != nil {
			t.Fatalf("cluster %s: namespace %s has no default ServiceAccount: %v", c.Name, namespace.Name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
