// Package app puts the server together: everything is opened here, in one order, and closed in the reverse one.
//
// The start waits for nothing that may be away: a cluster is contacted when it is needed, and a plugin that is slow or
// broken is waited for only briefly. The database alone must be there.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/config"
	"github.com/nagelfluh/nagelfluh/core/internal/connection"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/metrics"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// Options start a server.
type Options struct {
	Config  *config.Config
	Logger  hclog.Logger
	Version string
	// Say gets the few lines that are for the one who started the server, such as where it listens.
	Say func(format string, args ...any)
}

// pluginStartWait is how long the start waits for plugins; slower ones go on starting.
const pluginStartWait = 2 * time.Second

// app is a server that is being put together.
type app struct {
	o        Options
	cfg      *config.Config
	log      hclog.Logger
	closers  closers
	failed   chan error // of what runs in the background
	listener net.Listener

	db        *store.DB
	keys      *auth.Service
	metrics   *metrics.Metrics
	host      *plugin.Host
	clients   *kube.Registry
	allow     []netip.Prefix // that may be dialled although they are forbidden otherwise
	archive   *logs.Archive
	clusters  *cluster.Service
	storage   *storage.Service
	processes *process.Service
	install   string
	api       *httpapi.Server
	self      string         // this server's id among several
	elector   *lease.Elector // nil: this server has the database to itself
	term      atomic.Pointer[term]
}

// Run serves until ctx ends, then drains and closes everything. It returns nil after an orderly end.
func Run(ctx context.Context, o Options) (err error) {
	a := &app{o: o, cfg: o.Config, log: o.Logger, failed: make(chan error, 8)}
	defer func() { err = errors.Join(err, a.closers.close()) }()
	for _, w := range a.cfg.Warnings {
		a.log.Warn(w)
	}
	for _, step := range []func(context.Context) error{
		a.listen, a.openStore, a.bootstrap, a.startPlugins, a.reachClusters, a.openLogs, a.elect, a.build, a.work, a.debug, a.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
	}
	a.say("listening on http://%s", a.listener.Addr())
	if a.cfg.ServerURL != "" {
		a.say("users reach it at %s", a.cfg.ServerURL)
	}
	a.log.Info("ready", "version", o.Version, "address", a.listener.Addr().String(), "installation", a.install)
	select {
	case <-ctx.Done():
		a.say("stopping: requests under way are finished; a second signal ends at once")
		return nil
	case err := <-a.failed:
		return err
	}
}

func (a *app) say(format string, args ...any) {
	if a.o.Say != nil {
		a.o.Say(format, args...)
	}
}

// run starts something that lives until the server closes; what it returns before that ends the server.
func (a *app) run(name string, f func(ctx context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			a.failed <- fmt.Errorf("%s: %w", name, err)
		}
	})
	a.closers.add(func() error { stop(); wg.Wait(); return nil })
}

// listen takes the address first: when it is in use nothing else needs to start.
func (a *app) listen(ctx context.Context) (err error) {
	if a.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w", a.cfg.Listen, err)
	}
	a.closers.add(func() error {
		if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (a *app) openStore(ctx context.Context) (err error) {
	if err := os.MkdirAll(a.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	box := secret.NewBox(a.cfg.KeysetFile)
	if a.db, err = store.Open(ctx, store.Options{
		URL: a.cfg.Database, Server: true, Logger: a.log.Named("store"), Sealer: box,
	}); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	a.closers.add(a.db.Close)
	applied, err := a.db.Migrate(ctx)
	if err != nil {
		return fmt.Errorf("bring the database up to date: %w", err)
	}
	if len(applied) > 0 {
		a.log.Info("database brought up to date", "migrations", applied)
	}
	if err := a.openSecrets(ctx, box); err != nil {
		return err
	}
	a.install, err = a.db.EnsureSetting(ctx, store.SettingInstallation, uuid.NewString())
	if err != nil {
		return fmt.Errorf("read the installation's id: %w", err)
	}
	return nil
}

// openSecrets refuses to go on without the keyset that the database was encrypted with.
func (a *app) openSecrets(ctx context.Context, box *secret.Box) error {
	did, err := box.Start(ctx, a.db)
	if err != nil {
		return fmt.Errorf("open the stored secrets: %w", err)
	}
	if did.Created {
		a.say("first start: made the keyset %s. Back it up: without it the stored secrets cannot be read.", a.cfg.KeysetFile)
	}
	if did.Encrypted > 0 {
		a.log.Info("stored secrets encrypted", "number", did.Encrypted)
	}
	for _, id := range did.Unreadable {
		a.log.Error("a stored secret cannot be decrypted: its row was changed; give it a new one", "of", id)
	}
	return nil
}

// bootstrap makes the first admin at the first start.
func (a *app) bootstrap(ctx context.Context) error {
	a.keys = auth.NewService(a.db)
	path := filepath.Join(a.cfg.DataDir, "admin.key")
	var key string
	made, err := a.keys.Bootstrap(ctx, func(k string) error {
		key = k
		return writeSecret(path, k+"\n")
	})
	if err != nil {
		return err
	}
	if made {
		a.say("first start: made user %q with the API key\n\n  %s\n\nIt is shown this once, and kept in %s.", auth.AdminName, key, path)
	}
	return nil
}

func (a *app) startPlugins(ctx context.Context) (err error) {
	a.metrics = metrics.New()
	configs := make(map[string]plugin.Config, len(a.cfg.Plugins))
	for name, p := range a.cfg.Plugins {
		configs[name] = plugin.Config{
			Config: p.Config, SHA256: p.SHA256, OnError: p.OnError, Required: p.Required,
			GrantBackendEnvironment: p.GrantBackendEnvironment, Timeout: p.PluginTimeout(),
		}
	}
	a.host, err = plugin.NewHost(plugin.Options{
		Dirs: a.cfg.PluginDirs, Plugins: configs, StrictPlugins: a.cfg.StrictPlugins, Env: a.cfg.PluginEnv, HostVersion: a.o.Version,
		StartLimit: a.cfg.PluginStartLimit, StartWait: pluginStartWait, Logger: a.log.Named("plugin"), Observe: a.metrics.PluginCall,
	})
	if err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	a.closers.add(func() error { a.host.Close(); return nil })
	if err := a.host.Start(ctx); err != nil {
		return fmt.Errorf("start the plugins: %w", err)
	}
	return nil
}

func (a *app) openLogs(ctx context.Context) (err error) {
	if a.archive, err = logs.OpenArchive(ctx, a.cfg.LogArchive); err != nil {
		return fmt.Errorf("open the archive of logs: %w", err)
	}
	a.closers.add(a.archive.Close)
	return nil
}

// build makes the services and the API over them; nothing is served yet.
func (a *app) build(context.Context) (err error) {
	tester := connection.New(connection.Options{Connector: connector{a.host}, Clients: a.clients, MakesNamespaces: true})
	a.clusters = cluster.NewService(a.db, providers{a.host}, tester, leaders{a})
	a.storage = storage.NewService(storage.Options{
		Store: a.db, Tester: storage.S3Tester{Dial: kube.Dialer(a.allow).DialContext}, Selectors: a.host.StorageSelectors, Logger: a.log.Named("storage"),
	})
	a.processes = process.NewService(a.db, httpapi.ClusterFinder(a.clusters))
	if err := a.metrics.Register(newCollector(a.db)); err != nil {
		return err
	}
	o := httpapi.Options{
		Store: a.db, Auth: a.keys, Processes: a.processes, Clusters: a.clusters, Storage: a.storage, Placement: leaders{a}, Plugins: a.host,
		Metrics: a.metrics, Logger: a.log, Version: a.o.Version, Seen: a.seen,
	}
	a.reachReplicas(&o)
	if a.api, err = httpapi.New(o); err != nil {
		return err
	}
	a.run("event streams", func(ctx context.Context) error { a.api.Run(ctx); return nil })
	return nil
}

// serve starts the API, last of all, so that it is the first to end: its listener has been open since the start, and no
// early client is turned away.
func (a *app) serve(context.Context) error {
	srv := &http.Server{
		Handler: a.api, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: a.log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve: %w", err)
		}
	})
	a.closers.add(func() error {
		defer wg.Wait()
		a.api.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			_ = srv.Close()
			a.log.Warn("requests were cut off, for they took longer than the shutdown may", "limit", a.cfg.ShutdownTimeout)
		}
		return nil
	})
	return nil
}

// seen acts on what happened: a cluster that was edited is reached anew, and one on which an attempt ended has more room.
func (a *app) seen(e event.Event) {
	ended := e.Kind == event.StateChanged && process.State(e.State).Terminal()
	if ended {
		a.metrics.Ended(e.State)
	}
	t := a.term.Load()
	switch {
	case e.ClusterID == "":
	case e.Kind == event.ClusterChanged && e.Actor != "system":
		a.clients.Changed(e.ClusterID)
		if t != nil {
			t.monitor.Refresh(e.ClusterID)
		}
	case ended && t != nil:
		t.monitor.Freed(e.ClusterID)
	}
}
