package stack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Clusters are running local clusters.
type Clusters struct {
	*Child
	mu          sync.Mutex
	kubeconfigs map[string]string
}

var readyLine = regexp.MustCompile(`^([a-z0-9-]+)\t(/.+)$`)

// StartClusters starts local clusters in dir and returns when all are ready. args are those of `devcluster up`, such as
// --name a --name gpu --gpus 8; names are the clusters that they start. line gets the progress; nil: nobody.
func StartClusters(ctx context.Context, dir string, names []string, line func(string), args ...string) (*Clusters, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	c := &Clusters{kubeconfigs: map[string]string{}}
	cmd := exec.Command(filepath.Join(root, "bin", "devcluster"), append([]string{"up", "--dir", dir}, args...)...)
	dieWithParent(cmd)
	ready := make(chan struct{})
	c.Child, err = spawn("devcluster", cmd, func(s string) {
		if m := readyLine.FindStringSubmatch(s); m != nil {
			c.mu.Lock()
			c.kubeconfigs[m[1]] = m[2]
			all := len(c.kubeconfigs) == len(names)
			c.mu.Unlock()
			if all {
				close(ready)
			}
		}
		if line != nil {
			line(s)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, ready, 3*time.Minute); err != nil {
		_ = c.Stop(20 * time.Second)
		return nil, err
	}
	return c, nil
}

// Kubeconfig is the path of a cluster's kubeconfig.
func (c *Clusters) Kubeconfig(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kubeconfigs[name]
}

// Client returns a client of its own for a cluster, without any rate limit.
func (c *Clusters) Client(name string) (*kubernetes.Clientset, error) {
	return Client(c.Kubeconfig(name))
}

// Client returns a client for a kubeconfig, without any rate limit.
func Client(kubeconfig string) (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.QPS = -1
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(cfg)
}
