package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
	"github.com/nagelfluh/nagelfluh/e2e/stack"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

// namespace is where the Jobs are, on every cluster.
const namespace = "soak"

// world is everything that runs.
type world struct {
	o        options
	dir      string
	names    []string // of the clusters; the first is the default one
	clusters *stack.Clusters
	links    []*faultproxy.Proxy // between the server and each cluster
	direct   []*kubernetes.Clientset
	cores    []*core
	pg       *postgres.Server // of several servers; nil: SQLite
}

// clusterName is the name of a cluster at devcluster; row is that at the server.
func clusterName(i int) string {
	switch i {
	case 0:
		return "main"
	case plan.GPUCluster:
		return "gpu"
	}
	return fmt.Sprintf("east-%d", i)
}

func row(i int) string {
	if i == 0 {
		return "Default Cluster"
	}
	return clusterName(i)
}

func start(ctx context.Context, o options, dir string) (w *world, err error) {
	w = &world{o: o, dir: dir}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, sub := range []string{w.witness(), filepath.Join(dir, "plugins"), w.data()} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return w, err
		}
	}
	args := []string{"--audit-objects"}
	for i := range o.Clusters {
		w.names = append(w.names, clusterName(i))
		args = append(args, "--name", clusterName(i))
		if i == plan.GPUCluster {
			args = append(args, "--gpus", "64")
		}
	}
	if w.clusters, err = stack.StartClusters(ctx, filepath.Join(dir, "clusters"), w.names, nil, args...); err != nil {
		return w, err
	}
	var links []string
	for _, name := range w.names {
		link, err := w.connect(ctx, name)
		if err != nil {
			return w, err
		}
		links = append(links, link)
	}
	return w, w.serve(ctx, links)
}

func (w *world) witness() string { return filepath.Join(w.dir, "notes") }
func (w *world) plugins() string { return filepath.Join(w.dir, "plugins") }
func (w *world) data() string    { return filepath.Join(w.dir, "data") }

// core is the server whose turn it is.
func (w *world) core(n uint32) *core { return w.cores[int(n)%len(w.cores)] }

func (w *world) database() string {
	if w.pg != nil {
		return w.pg.DSN
	}
	return filepath.Join(w.data(), "nagelfluh.db")
}

func (w *world) archive() string { return filepath.Join(w.data(), "logs") }

// connect puts a link in front of a cluster and returns the path of the kubeconfig that leads through it.
func (w *world) connect(ctx context.Context, name string) (string, error) {
	raw, err := os.ReadFile(w.clusters.Kubeconfig(name))
	if err != nil {
		return "", err
	}
	link, err := faultproxy.New(raw)
	if err != nil {
		return "", err
	}
	w.links = append(w.links, link)
	client, err := w.clusters.Client(name)
	if err != nil {
		return "", err
	}
	w.direct = append(w.direct, client)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	path := filepath.Join(w.dir, name+".kubeconfig")
	return path, os.WriteFile(path, link.Kubeconfig(), 0o600)
}

// serve starts the server with plugins of its own, so that it can be told afterwards whether one was left behind.
func (w *world) serve(ctx context.Context, links []string) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	if err := copyPlugins(filepath.Join(root, "bin", "plugins"), w.plugins()); err != nil {
		return err
	}
	env := []string{"K8S_NAMESPACE=" + namespace, "NAGELFLUH_JOBS_RETENTION=" + w.o.retention.String()}
	if w.o.Replicas > 1 {
		if w.pg, err = postgres.Start(ctx); err != nil {
			return err
		}
		env = append(env, "NAGELFLUH_DATABASE="+w.pg.DSN, "NAGELFLUH_LOGS_ARCHIVE=file://"+w.archive(),
			"NAGELFLUH_SECRETS_KEYSET_FILE="+filepath.Join(w.dir, "keyset.json"))
	}
	for i := range max(1, w.o.Replicas) {
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		c := &core{o: stack.ServerOptions{Dir: w.data(), PluginDir: w.plugins(), Kubeconfig: links[0], Listen: listen, Env: env},
			log: filepath.Join(w.dir, "core.log")}
		if i > 0 {
			// A data directory each, and the keys that the first start stored.
			c.o.Dir, c.o.Key = fmt.Sprintf("%s-%d", w.data(), i), w.cores[0].get().Key
			c.log = filepath.Join(w.dir, fmt.Sprintf("core-%d.log", i))
			if err := os.MkdirAll(c.o.Dir, 0o755); err != nil {
				return err
			}
		}
		w.cores = append(w.cores, c)
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	for i, link := range links[1:] {
		if _, err := w.cores[0].get().CLI(ctx, "clusters", "add", row(i+1), "--type", "kubeconfig", "--kubeconfig", link); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return stack.Until(ctx, "every cluster is ready", func() (bool, error) {
		var list struct {
			Items []struct {
				Observed struct {
					Health   string
					Capacity *struct{}
				}
			}
		}
		if err := w.cores[0].get().Get(ctx, "/clusters", &list); err != nil {
			return false, err
		}
		for _, c := range list.Items {
			if c.Observed.Health != "ready" || c.Observed.Capacity == nil {
				return false, nil
			}
		}
		return len(list.Items) == len(links), nil
	})
}

func copyPlugins(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("find the plugins (`make build` builds them): %w", err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), raw, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// close ends what still runs.
func (w *world) close() {
	for _, c := range w.cores {
		c.close()
	}
	for _, l := range w.links {
		l.Close()
	}
	if w.clusters != nil {
		_ = w.clusters.Stop(20 * time.Second)
	}
	if w.pg != nil {
		_ = w.pg.Stop()
	}
}

// core is the server, whichever process that is at the moment.
type core struct {
	o   stack.ServerOptions
	log string

	mu     sync.Mutex
	server *stack.Server
	out    *os.File
	errs   []error // what it should not have done
}

func (c *core) get() *stack.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

func (c *core) start(ctx context.Context) error {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	o := c.o
	o.Line = func(s string) { _, _ = fmt.Fprintln(out, s) }
	s, err := stack.StartServer(ctx, o)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.out = s, out
	return nil
}

// crash kills the server, as a power cut would, and starts it again on the same data.
func (c *core) crash(ctx context.Context, down time.Duration) error {
	s := c.get()
	select {
	case <-s.Done():
		c.mu.Lock()
		c.errs = append(c.errs, errors.New("the server ended although nobody killed it"))
		c.mu.Unlock()
	default:
		s.Kill()
	}
	_ = c.out.Close()
	pause(ctx, down)
	return c.start(ctx)
}

// stall stops the server for a while, as a machine that swaps or is moved would.
func (c *core) stall(ctx context.Context, d time.Duration) error {
	pid := c.get().Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, d)
	return syscall.Kill(pid, syscall.SIGCONT)
}

// stop ends the server in good order, at the end.
func (c *core) stop() {
	s := c.get()
	select {
	case <-s.Done():
		c.errs = append(c.errs, errors.New("the server ended although nobody killed it"))
	default:
		if err := s.Stop(30 * time.Second); err != nil {
			c.errs = append(c.errs, err)
		}
	}
}

func (c *core) close() {
	if s := c.get(); s != nil {
		s.Kill()
		_ = c.out.Close()
	}
}

// pause returns after a while, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
