// Package cluster gives Go tests real Kubernetes clusters: those of the
// devcluster binary, started for the test, for all tests of a package, or once
// for a whole run.
//
//	func TestJob(t *testing.T) {
//		clusters := cluster.Start(t, cluster.Options{Specs: []cluster.Spec{{Name: "a"}, {Name: "gpu", GPUs: 8}}})
//		namespace := cluster.Namespace(t, clusters[0])
//		…
//	}
//
// A package whose tests share clusters starts them in TestMain (see Main).
// Many packages share those of a running `devcluster up --dir DIR` when
// NAGELFLUH_DEVCLUSTER_DIR names that DIR. Every test uses a namespace of its own.
//
// The binary is the one that NAGELFLUH_DEVCLUSTER names, else bin/devcluster in
// this folder or one above. Without it, or with NAGELFLUH_DEVCLUSTER=off, tests
// are skipped and say so, unless NAGELFLUH_REQUIRE_DEVCLUSTER=1: then they fail.
package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment variables of this package.
const (
	BinaryEnv       = "NAGELFLUH_DEVCLUSTER"
	RequireEnv      = "NAGELFLUH_REQUIRE_DEVCLUSTER"
	RequireKueueEnv = "NAGELFLUH_REQUIRE_KUEUE"
	DirEnv          = "NAGELFLUH_DEVCLUSTER_DIR"
)

// Spec is one cluster to start.
type Spec struct {
	Name string
	GPUs int // nvidia.com/gpu of each node
}

// Options are what to start. The zero value is one cluster named "dev".
type Options struct {
	Specs []Spec
	// Of each cluster and node; zero is devcluster's default.
	Nodes  int
	CPU    string
	Memory string
	Pods   int
	// Kueue runs in each cluster; skipped when it is not built (devcluster/kueue.sh),
	// unless NAGELFLUH_REQUIRE_KUEUE=1. See LocalQueue.
	Kueue bool
	// Private asks for clusters of one's own even when a run shares some:
	// for tests that stop API servers or count what an audit log has.
	Private bool
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	Name           string
	Server         string // URL of the API server
	KubeconfigPath string // of an administrator, self-contained
	AuditLog       string // path; see AuditEvents
	GPUs           int    // of each node

	dir    string // of the supervisor
	binary string

	once   sync.Once
	client *kubernetes.Clientset
	err    error
}

// Kubeconfig returns the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() ([]byte, error) { return os.ReadFile(c.KubeconfigPath) }

// RESTConfig returns a configuration without limits on the client's side.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: read its kubeconfig: %w", c.Name, err)
	}
	config.QPS = -1
	return config, nil
}

// Client returns an administrator's client, always the same one.
func (c *Cluster) Client() (*kubernetes.Clientset, error) {
	c.once.Do(func() {
		config, err := c.RESTConfig()
		if err != nil {
			c.err = err
			return
		}
		c.client, c.err = kubernetes.NewForConfig(config)
	})
	return c.client, c.err
}

// StopAPIServer stops the API server; pods go on running. Use it with
// Options.Private only.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.command(ctx, "stop-apiserver") }

// StartAPIServer starts it again on the same port and data, and waits for it.
func (c *Cluster) StartAPIServer(ctx context.Context) error { return c.command(ctx, "start-apiserver") }

// Restart stops and starts the whole cluster on the same ports and data.
func (c *Cluster) Restart(ctx context.Context) error { return c.command(ctx, "restart") }

func (c *Cluster) command(ctx context.Context, action string) error {
	_, err := run(ctx, c.binary, action, c.Name, "--dir", c.dir)
	return err
}
