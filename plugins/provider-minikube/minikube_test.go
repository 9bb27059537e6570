package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/sdk/conformance"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: minikube
contexts:
- name: minikube
  context: {cluster: minikube, user: minikube, namespace: default, extensions: [{name: context_info, extension: {version: v1.38.1}}]}
clusters:
- name: minikube
  cluster: {server: "https://192.0.2.7:8443", certificate-authority-data: Y2E=, extensions: [{name: cluster_info}]}
users:
- name: minikube
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}
`

// config is what the admin form sends.
func config(t *testing.T) string {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"kubeconfig": kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestConnect(t *testing.T) {
	p := plugintest.Provider(t, newProvider(), "")
	connection, err := p.Connect(t.Context(), "east", "minikube", config(t))
	if err != nil || !strings.Contains(string(connection.Kubeconfig), `"server":"https://192.0.2.7:8443"`) {
		t.Errorf("connected with %s, %v", connection.Kubeconfig, err)
	}
}

func TestConformance(t *testing.T) {
	working := conformance.WithCluster("minikube", config(t))
	t.Run("memory", func(t *testing.T) {
		conformance.Provider(t, conformance.InMemory(info, func() any { return newProvider() }), working)
	})
	t.Run("binary", func(t *testing.T) { conformance.Provider(t, conformance.Binary(conformance.Build(t)), working) })
}
