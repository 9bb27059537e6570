package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Clusters are running local clusters.
type Clusters struct {
	*Child
	binary, dir string

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
	c := &Clusters{kubeconfigs: map[string]string{}, binary: filepath.Join(root, "bin", "devcluster"), dir: dir}
	cmd := exec.Command(c.binary, append([]string{"up", "--dir", dir}, args...)...)
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

// AuditLog is the path of the log of what was changed at a cluster.
func (c *Clusters) AuditLog(name string) string { return filepath.Join(c.dir, name, "audit.log") }

// ComponentLog is the path of the log of a component of a cluster, such as kubelet.
func (c *Clusters) ComponentLog(name, component string) string {
	return filepath.Join(c.dir, name, "logs", component+".log")
}

// StopAPIServer stops a cluster's API server; pods go on running.
func (c *Clusters) StopAPIServer(ctx context.Context, name string) error {
	_, err := c.command(ctx, "stop-apiserver", name)
	return err
}

// StartAPIServer starts it again and waits for it.
func (c *Clusters) StartAPIServer(ctx context.Context, name string) error {
	_, err := c.command(ctx, "start-apiserver", name)
	return err
}

// Pid is the process id of a component of a cluster, such as kube-apiserver.
func (c *Clusters) Pid(ctx context.Context, name, component string) (int, error) {
	out, err := c.command(ctx, "status", "--json")
	if err != nil {
		return 0, err
	}
	var report struct {
		Clusters []struct {
			Name      string
			Processes map[string]int
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("read the status of the clusters: %w", err)
	}
	for _, one := range report.Clusters {
		if pid := one.Processes[component]; one.Name == name && pid > 0 {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("cluster %s runs no %s", name, component)
}

func (c *Clusters) command(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, c.binary, append(args, "--dir", c.dir)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("devcluster %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
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
