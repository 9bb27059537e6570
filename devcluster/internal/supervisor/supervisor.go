// Package supervisor runs several clusters and answers the other commands.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/pki"
)

// Config is what a supervisor needs to know.
type Config struct {
	Dir   string
	Specs []controlplane.Spec
	Nodes controlplane.NodeKind
	// Addons run beside each cluster.
	Addons []controlplane.Addon
	// Ready is called once for each cluster that is ready, one call at a time.
	Ready func(controlplane.Status)
	Logf  func(format string, args ...any)
}

type supervisor struct {
	Config
	clusters map[string]*controlplane.Cluster
	order    []string
	stop     context.CancelFunc
	token    string

	mu       sync.Mutex
	allReady bool
}

// Run starts the clusters, serves until ctx ends or `down` is asked for, and
// stops everything in order. It removes the clusters' files at the end.
func Run(ctx context.Context, config Config) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return fmt.Errorf("folder %s: %w", config.Dir, err)
	}
	config.Dir = dir
	held, err := lock(dir)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := sweep(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sweepKeepingLogs(dir, err)) }()
	spawner, err := child.NewSpawner()
	if err != nil {
		return err
	}
	s := &supervisor{Config: config, clusters: map[string]*controlplane.Cluster{}, stop: stop, token: pki.Token()}
	for _, spec := range config.Specs {
		path, err := clusterDir(dir, spec.Name)
		if err != nil {
			return err
		}
		cluster, err := controlplane.New(spec, path, spawner, config.Nodes, config.Addons, config.Logf)
		if err != nil {
			return err
		}
		s.clusters[spec.Name] = cluster
		s.order = append(s.order, spec.Name)
	}
	defer s.stopAll()
	closeControl, err := s.serveControl()
	if err != nil {
		return err
	}
	defer closeControl()
	if err := s.startAll(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while starting
		}
		return err
	}
	<-ctx.Done()
	config.Logf("stopping")
	return nil
}

// sweepKeepingLogs leaves the files where they are when something went wrong:
// the error names them.
func sweepKeepingLogs(dir string, failure error) error {
	if failure != nil {
		return os.Remove(statePath(dir))
	}
	return sweep(dir)
}

func (s *supervisor) startAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	results := make(chan error, len(s.order))
	for _, name := range s.order {
		go func(cluster *controlplane.Cluster) {
			err := cluster.Start(ctx)
			if err == nil {
				s.mu.Lock()
				s.Ready(cluster.Status())
				s.mu.Unlock()
			}
			results <- err
		}(s.clusters[name])
	}
	var failures error
	for range s.order {
		if err := <-results; err != nil {
			cancel() // the others need not go on
			if failures == nil {
				failures = err
			}
		}
	}
	if failures != nil {
		return failures
	}
	s.mu.Lock()
	s.allReady = true
	s.mu.Unlock()
	s.Logf("%d cluster(s) ready in %.1f s", len(s.order), time.Since(began).Seconds())
	return nil
}

func (s *supervisor) stopAll() {
	var stopping sync.WaitGroup
	for _, cluster := range s.clusters {
		stopping.Go(cluster.Stop)
	}
	stopping.Wait()
}

// serveControl answers `status`, `down` and the like on loopback TCP: a path to
// a Unix socket would be too long in many temporary folders.
func (s *supervisor) serveControl() (func(), error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	err = writeState(s.Dir, state{PID: os.Getpid(), Address: listener.Addr().String(), Token: s.token})
	if err != nil {
		server.Close()
		return nil, err
	}
	return func() { server.Close() }, nil
}
