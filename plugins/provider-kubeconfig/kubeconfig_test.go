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
current-context: jobs
contexts:
- name: jobs
  context: {cluster: east, user: runner}
- name: admin
  context: {cluster: east, user: root}
clusters:
- name: east
  cluster: {server: "https://east.example.org:6443"}
users:
- name: runner
  user: {token: runner-token}
- name: root
  user: {token: root-token}
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

func TestStoresOnlyWhatIsNeeded(t *testing.T) {
	p := plugintest.Provider(t, newProvider(), "")
	valid, err := p.ValidateConfig(t.Context(), "kubeconfig", config(t))
	if err != nil {
		t.Fatal(err)
	}
	stored := string(valid.Config.(json.RawMessage))
	if !strings.Contains(stored, "runner-token") || strings.Contains(stored, "root-token") {
		t.Errorf("stored: %s", stored)
	}
	connection, err := p.Connect(t.Context(), "east", "kubeconfig", stored)
	if err != nil || !strings.Contains(string(connection.Kubeconfig), "runner-token") {
		t.Errorf("connected with %s, %v", connection.Kubeconfig, err)
	}
}

func TestConformance(t *testing.T) {
	working := conformance.WithCluster("kubeconfig", config(t))
	t.Run("memory", func(t *testing.T) {
		conformance.Provider(t, conformance.InMemory(info, func() any { return newProvider() }), working)
	})
	t.Run("binary", func(t *testing.T) { conformance.Provider(t, conformance.Binary(conformance.Build(t)), working) })
}
