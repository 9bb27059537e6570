package main

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/sdk/conformance"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConnect(t *testing.T) {
	p := plugintest.Provider(t, &backend{}, "")
	connection, err := p.Connect(t.Context(), "home", "same-as-backend", `{}`)
	if err != nil || !connection.BackendEnvironment || connection.Kubeconfig != nil {
		t.Errorf("got %+v, %v", connection, err)
	}
	if _, err := p.Connect(t.Context(), "home", "same-as-backend", `{"kubeconfig": "x"}`); plugintest.CodeOf(err) != codes.InvalidArgument {
		t.Errorf("a config with settings: %v", err)
	}
}

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		conformance.Provider(t, conformance.InMemory(info, func() any { return &backend{} }))
	})
	t.Run("binary", func(t *testing.T) { conformance.Provider(t, conformance.Binary(conformance.Build(t))) })
}
