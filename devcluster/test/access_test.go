package test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serviceAccount sees that tokens made through the API work, and that RBAC does.
func serviceAccount(t *testing.T, c *cluster) {
	token, err := c.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token.Status.Token
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an account without a role lists pods: %v", err)
	}
	_, err = client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{DryRun: []string{"All"}})
	if !apierrors.IsForbidden(err) {
		t.Errorf("an account without a role creates pods: %v", err)
	}
}
