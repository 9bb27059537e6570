// Command demo shows Nagelfluh at work on two local clusters, or on the clusters of a kubeconfig: it starts everything,
// submits a handful of processes, shows who went where and why, the logs and the exit codes, and keeps serving. With
// --once it checks what it shows, ends, and leaves nothing running.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

func main() {
	once := flag.Bool("once", false, "check the result, stop everything and exit 0 or 1")
	kubeconfig := flag.String("kubeconfig", "", "use the current cluster of this kubeconfig instead of local clusters")
	listen := flag.String("listen", "127.0.0.1:8080", "address of the server; with --once a free port is used")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *once {
		*listen = "127.0.0.1:0"
	}
	err := run(ctx, *once, *kubeconfig, *listen)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		say("stopped")
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var began = time.Now()

// say prints one step of the progress.
func say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, once bool, kubeconfig, listen string) (err error) {
	dir, err := os.MkdirTemp("", "nagelfluh-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var d demo
	// The order matters: the server lets go of the clusters before they end.
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx, dir, kubeconfig, listen); err != nil {
		return err
	}
	if err := d.submit(ctx); err != nil {
		return err
	}
	if err := d.show(ctx); err != nil {
		return err
	}
	failed := d.check(ctx)
	if failed != nil {
		return failed
	}
	say("everything is as it should be")
	if once {
		return nil
	}
	fmt.Printf(`
The server goes on at %s. In another terminal:

  export NAGELFLUH_SERVER=%s NAGELFLUH_API_KEY=%s
  bin/nagelfluh clusters list
  bin/nagelfluh run --name mine --image busybox --gpus 1 -- sh -c 'echo hello from a GPU job'
  bin/nagelfluh explain mine

Ctrl-C ends it and removes everything.
`, d.server.URL, d.server.URL, d.server.Key)
	select {
	case <-ctx.Done():
		return nil
	case <-d.server.Done():
		return errors.New("the server ended by itself")
	}
}

// demo is what runs.
type demo struct {
	clusters *stack.Clusters // nil with a kubeconfig of the caller
	own      string          // that kubeconfig; empty: local clusters
	server   *stack.Server
	gpu      bool // there is a GPU cluster
	jobs     []*job
}

func (d *demo) start(ctx context.Context, dir, kubeconfig, listen string) error {
	main := kubeconfig
	d.own = kubeconfig
	if kubeconfig == "" {
		say("starting two local clusters: main, and gpu with 8 GPUs")
		var err error
		d.clusters, err = stack.StartClusters(ctx, filepath.Join(dir, "clusters"), []string{"main", "gpu"},
			nil, "--name", "main", "--name", "gpu", "--gpus", "8")
		if err != nil {
			return err
		}
		say("both clusters are ready")
		main, d.gpu = d.clusters.Kubeconfig("main"), true
	}
	var err error
	d.server, err = stack.StartServer(ctx, stack.ServerOptions{Dir: filepath.Join(dir, "server"), Kubeconfig: main, Listen: listen})
	if err != nil {
		return err
	}
	say("the server listens on %s, with the clusters of its own environment as the default cluster", d.server.URL)
	if d.gpu {
		_, err := d.server.CLI(ctx, "clusters", "add", "gpu", "--type", "kubeconfig", "--kubeconfig", d.clusters.Kubeconfig("gpu"))
		if err != nil {
			return err
		}
		say("added cluster gpu with `nagelfluh clusters add gpu --type kubeconfig --kubeconfig FILE`")
	}
	return d.ready(ctx)
}

// ready waits until every cluster is contacted and its nodes are read.
func (d *demo) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := stack.Until(ctx, "every cluster is ready", func() (bool, error) {
		var list struct {
			Items []struct {
				Name     string
				Observed struct{ Health, Message string }
			}
		}
		if err := d.server.Get(ctx, "/clusters", &list); err != nil {
			return false, err
		}
		for _, c := range list.Items {
			if c.Observed.Health != "ready" {
				return false, fmt.Errorf("cluster %s is %s: %s", c.Name, c.Observed.Health, c.Observed.Message)
			}
		}
		return len(list.Items) > 0, nil
	})
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"plugins", "list"}, {"clusters", "list"}} {
		out, err := d.server.CLI(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Printf("\n$ nagelfluh %s %s\n%s\n", args[0], args[1], out)
	}
	return nil
}

func (d *demo) stop() error {
	var errs []error
	if d.server != nil {
		errs = append(errs, d.server.Stop(8*time.Second))
	}
	if d.clusters != nil {
		errs = append(errs, d.clusters.Stop(15*time.Second))
	}
	if d.own != "" {
		errs = append(errs, d.tidy())
	}
	return errors.Join(errs...)
}
