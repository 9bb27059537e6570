package app

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/nagelfluh/nagelfluh/core/internal/httpapi"
	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/replica"
)

// settleWait is how long the start waits to know who leads.
const settleWait = 3 * time.Second

// elect prepares to find out which of several servers leads.
func (a *app) elect(context.Context) error {
	if !a.db.Replicated() {
		return nil
	}
	a.self = uuid.NewString()
	a.elector = lease.New(lease.Options{
		Session: a.db.Lease(a.self, a.replicaAddress(), a.cfg.ReplicaLease), TTL: a.cfg.ReplicaLease, Lead: a.lead,
		Logger: a.log.Named("lease"),
	})
	return nil
}

// work starts what the leader does: at once when this server is alone, else when it leads.
func (a *app) work(ctx context.Context) error {
	if a.elector == nil {
		t, err := a.newTerm(nil)
		if err != nil {
			return err
		}
		a.term.Store(t)
		a.run("dispatch", t.run)
		return nil
	}
	a.run("lease", a.elector.Run)
	limit := time.NewTimer(settleWait)
	defer limit.Stop()
	select {
	case <-a.elector.Settled():
	case <-limit.C: // the database is slow; requests that need the leader wait for one
	case <-ctx.Done():
	}
	return nil
}

// reachReplicas has the API pass on what only the leader can serve.
func (a *app) reachReplicas(o *httpapi.Options) {
	var all replica.Leaders = replica.Alone{}
	if a.elector != nil {
		all = a.elector
	}
	transport := replica.NewTransport()
	a.closers.add(func() error { transport.CloseIdleConnections(); return nil })
	o.Leaders, o.Transport, o.Self = all, transport, a.self
	o.Logs = replica.NewLogs(replica.LogsOptions{
		Leaders: all, Transport: transport, Self: a.self, Attempts: a.db,
		Archive: logs.NewReader(logs.ReaderOptions{Archive: a.archive, Attempts: a.db}),
		Local: func() replica.Follower {
			if t := a.term.Load(); t != nil {
				return t.reader
			}
			return nil
		},
	})
}

// replicaAddress is what other servers reach this one under.
func (a *app) replicaAddress() string {
	if a.cfg.ReplicaAddress != "" {
		return a.cfg.ReplicaAddress
	}
	host, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil {
		return "http://" + a.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}
