// Package kueue runs Kueue as one more process of a cluster.
package kueue

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

const (
	namespace   = "kueue-system"
	serviceName = "kueue-webhook-service"
	secretName  = "kueue-webhook-server-cert"
)

// Addon is the controlplane.Addon of this package.
type Addon struct{ binary, crds string }

var _ controlplane.Addon = Addon{}

// New finds Kueue's binary and, beside it, its custom resource definitions.
func New(binary string) (Addon, error) {
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return Addon{}, fmt.Errorf("find this binary: %w", err)
		}
		binary = filepath.Join(filepath.Dir(self), "kueue")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return Addon{}, fmt.Errorf("kueue: %w", err)
	}
	addon := Addon{binary: binary, crds: filepath.Join(filepath.Dir(binary), "kueue-crds")}
	for _, path := range []string{addon.binary, addon.crds} {
		if _, err := os.Stat(path); err != nil {
			return Addon{}, fmt.Errorf("kueue: %w: build it with devcluster/kueue.sh, or name it with --kueue-bin", err)
		}
	}
	return addon, nil
}

// Programs installs what Kueue needs in the cluster and returns Kueue.
func (a Addon) Programs(ctx context.Context, c *controlplane.Cluster) ([]child.Program, error) {
	dir := filepath.Join(c.Paths.Dir, "kueue")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kueue: make its folder: %w", err)
	}
	health, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	webhook, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	certificates, err := newCertificates(dir)
	if err != nil {
		return nil, err
	}
	installer, err := newInstaller(c.Paths.Kubeconfig())
	if err != nil {
		return nil, err
	}
	if err := installer.install(ctx, a.crds, webhook, certificates); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configuration(health, webhook, dir)), 0o600); err != nil {
		return nil, fmt.Errorf("kueue: %w", err)
	}
	return []child.Program{{
		Name:    "kueue",
		Path:    a.binary,
		Args:    []string{"--config=" + config, "--feature-gates=VisibilityOnDemand=false"},
		Env:     []string{"KUBECONFIG=" + c.Paths.Kubeconfig()},
		LogFile: c.Paths.Log("kueue"),
		Ready:   func(ctx context.Context) error { return healthy(ctx, health) },
	}}, nil
}

// Finish makes queues with which Jobs can be admitted at once.
func (a Addon) Finish(ctx context.Context, c *controlplane.Cluster) error {
	installer, err := newInstaller(c.Paths.Kubeconfig())
	if err != nil {
		return err
	}
	return installer.queues(ctx, c.Spec)
}

// configuration is Kueue's. It manages its certificates itself although they
// are made here: otherwise it wants some in /etc.
func configuration(health, webhook int, dir string) string {
	return fmt.Sprintf(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: %s
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
leaderElection: {leaderElect: false}
clientConnection: {qps: 1000, burst: 2000}
internalCertManagement: {enable: true, webhookServiceName: %s, webhookSecretName: %s}
integrations: {frameworks: [batch/job]}
`, namespace, health, webhook, dir, serviceName, secretName)
}

func healthy(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kueue answers %s", response.Status)
	}
	return nil
}
