package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/dispatch"
	"github.com/nagelfluh/nagelfluh/core/internal/health"
	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// term is what works while this server leads: placement, dispatch, health and the following of logs. Nothing of it
// outlives the term; the next one finds everything in the database and at the clusters.
type term struct {
	ledger  *placement.Ledger
	engine  *placement.Engine
	monitor *health.Monitor
	work    *dispatch.Dispatcher
	keeper  *logs.Keeper
	reader  *logs.Reader
}

// newTerm puts the leader's parts together; may says whether this server still leads.
func (a *app) newTerm(may func() bool) (t *term, err error) {
	quota := a.cfg.LogQuota
	if quota == 0 {
		quota = -1 // none
	}
	t = &term{ledger: placement.NewLedger()}
	t.keeper, err = logs.NewKeeper(logs.KeeperOptions{
		Source: logs.Clients(a.clientset), Archive: a.archive, SpoolDir: filepath.Join(a.cfg.DataDir, "spool"), Shared: a.db.Replicated(),
		Logger: a.log.Named("logs"), Quota: quota,
	})
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	t.reader = logs.NewReader(logs.ReaderOptions{Archive: a.archive, Attempts: a.db, Keeper: t.keeper})
	t.engine = a.newEngine(t.ledger)
	t.monitor = health.New(health.Options{
		Store: a.db, Clients: a.clients, Logger: a.log.Named("health"), Interval: a.cfg.HealthInterval, SuspectAfter: a.cfg.SuspectAfter,
		LostAfter: a.cfg.LostAfter, Counted: t.ledger.Observed, EnsureNamespace: true,
		Served: func(clusterType string) bool { return a.host.ServedTypes()[clusterType] != "" },
	})
	t.work = dispatch.New(dispatch.Options{
		Store: a.db, Placer: t.engine, Ledger: t.ledger, Clients: a.clients, Logs: t.keeper, Logger: a.log, Installation: a.install,
		DefaultNamespace: a.cfg.DefaultNamespace, PullSecrets: a.cfg.PullSecrets, PlacingErrorLimit: a.cfg.PlacingErrorLimit,
		Retention: a.cfg.JobRetention, Outages: t.monitor, StartLimits: startLimits(a.cfg), Storage: a.db, May: may,
	})
	return t, nil
}

func (a *app) newEngine(ledger *placement.Ledger) *placement.Engine {
	return placement.New(placement.Options{
		Store: a.db, Selectors: a.host.Selectors, ServedTypes: a.host.ServedTypes, Ledger: ledger, Binding: a.cfg.SelectorsBinding,
		Observe: a.metrics.Placement,
	})
}

// lead does the leader's work in a term of the lease, until ctx ends.
func (a *app) lead(ctx context.Context, held *lease.Term, begun func()) error {
	t, err := a.newTerm(held.Valid)
	if err != nil {
		return err
	}
	a.db.Lead(held.Epoch)
	a.term.Store(t)
	// First of all nobody takes this server for the leader any more, its own handlers included.
	follow := func() {
		a.db.Follow(held.Epoch)
		a.term.CompareAndSwap(t, nil)
	}
	defer follow()
	defer context.AfterFunc(ctx, follow)()
	begun()
	return t.run(ctx)
}

// run works until ctx ends and returns when everything has ended. An error is one of the start of dispatch.
func (t *term) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = t.monitor.Run(ctx) }) // it has no error
	err := t.work.Run(ctx)
	stop()
	running.Wait()
	return errors.Join(err, t.keeper.Close())
}

// leaders stands for the work of the term that runs. Requests for it come here only while there is one, or as it ends.
type leaders struct{ a *app }

// Abandon implements cluster.Remover.
func (l leaders) Abandon(ctx context.Context, c cluster.Cluster) (cluster.Abandonment, error) {
	t := l.a.term.Load()
	if t == nil {
		return cluster.Abandonment{}, store.ErrNotLeader
	}
	return t.work.Abandon(ctx, c)
}

// Readmit implements cluster.Remover.
func (l leaders) Readmit(id string) {
	if t := l.a.term.Load(); t != nil {
		t.work.Readmit(id)
	}
}

// Decide implements httpapi.Placement.
func (l leaders) Decide(ctx context.Context, attemptID string, r placement.Request) (placement.Decision, error) {
	t := l.a.term.Load()
	if t == nil {
		return placement.Decision{}, store.ErrNotLeader
	}
	return t.engine.Decide(ctx, attemptID, r)
}

// Choices implements httpapi.Placement: it depends on nothing that only the leader knows.
func (l leaders) Choices(ctx context.Context, u placement.User, p placement.Project) ([]placement.Candidate, error) {
	if t := l.a.term.Load(); t != nil {
		return t.engine.Choices(ctx, u, p)
	}
	return l.a.newEngine(placement.NewLedger()).Choices(ctx, u, p)
}
