package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// build is one attempt at bringing a slot up to date. There is at most one per slot at a time; it alone changes the slot's
// client, and it holds no lock while it waits for anything.
func (r *Registry) build(s *slot) {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.BuildTimeout)
	defer cancel()

	r.mu.Lock()
	client, forced := s.client, s.forced
	config, kind := s.config, s.kind
	r.mu.Unlock()

	row, err := r.o.Source.Cluster(ctx, s.id)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		r.finish(s, func() { s.err = fmt.Errorf("cluster %s: %w", s.id, err); r.removeLocked(s) })
		return
	case err != nil && client != nil:
		// The database does not answer: what is known of the cluster still holds.
		r.finish(s, func() { s.checkedAt = time.Now() })
		return
	case err != nil:
		r.finish(s, func() { r.failLocked(s, fmt.Errorf("read cluster %s: %w", s.id, err)) })
		return
	}

	edited := client == nil || row.ConfigRevision != config || row.Type != kind
	moved := client != nil && client.Namespace != r.namespace(row)
	due := client != nil && renewDue(client.link.current.Load().creds, time.Now())
	if !edited && !moved && !forced && !due {
		r.finish(s, func() { r.goodLocked(s, row) })
		return
	}

	t, err := r.connect(ctx, &row)
	if err != nil {
		r.failed(s, client, edited || moved, err)
		return
	}
	if client != nil && !moved && client.link.endpoint == t.endpoint && t.backend == nil {
		// What a renewal takes over from goes on to the end of its stream; what an admin took away, or the cluster has
		// rejected, does not: such a stream may be open and mute.
		r.swap(s, row, client, t, edited || forced)
		return
	}
	r.replace(s, row, client, t)
}

// failed ends an attempt that led to no connection. A client that is there stays in use until the cluster itself refuses
// it: neither a broken edit nor a provider that is away takes it from running work.
func (r *Registry) failed(s *slot, client *Client, changed bool, err error) {
	err = &ConnectError{ClusterID: s.id, Err: err}
	switch {
	case client == nil:
		r.o.Logger.Warn("no connection to cluster", "cluster", s.id, "error", err)
		r.finish(s, func() { r.failLocked(s, err) })
		return
	case changed:
		r.o.Logger.Warn("the edited cluster gives no connection; the former one stays in use", "cluster", s.id, "error", err)
	default:
		r.o.Logger.Warn("credentials of cluster could not be renewed", "cluster", s.id, "error", err)
	}
	r.finish(s, func() {
		now := time.Now()
		next := now.Add(backoff(s.failures))
		s.failures++
		s.checkedAt, s.forced = now, false
		if changed {
			s.retryAt = next
			client.link.stale.Store(&err)
		}
		postpone(client.link, next)
	})
}

// connect asks the provider and judges its answer. A renewed provider config is stored, and its revision noted in row, so
// that the change is not taken for an admin's. One that came in between stands: the next look at the row finds it.
func (r *Registry) connect(ctx context.Context, row *cluster.Cluster) (target, error) {
	conn, err := r.o.Connector.Connect(ctx, *row)
	if err != nil {
		return target{}, err
	}
	t, err := resolve(conn, r.o.Policy, r.o.Backend, time.Now())
	if err != nil {
		return target{}, err
	}
	for _, w := range t.warnings {
		r.o.Logger.Debug("kubeconfig of cluster", "cluster", row.ID, "warning", w)
	}
	if conn.ReplacementConfig != nil && r.o.StoreConfig != nil {
		revision, err := r.o.StoreConfig(ctx, row.ID, row.ConfigRevision, conn.ReplacementConfig)
		if err != nil {
			// What it connects with is good all the same.
			r.o.Logger.Warn("the provider config that the provider renewed is not stored", "cluster", row.ID, "error", err)
			return t, nil
		}
		row.ConfigRevision = revision
	}
	return t, nil
}

// swap puts new credentials into the present link. With reopen, the streams of the former ones are opened again.
func (r *Registry) swap(s *slot, row cluster.Cluster, client *Client, t target, reopen bool) {
	reopen = reopen && !client.link.current.Load().creds.same(t.creds)
	if err := client.link.swap(t.creds, reopen); err != nil {
		r.failed(s, client, true, err)
		return
	}
	r.finish(s, func() { r.goodLocked(s, row) })
}

// replace makes a new client and lets the old one, if any, drain.
func (r *Registry) replace(s *slot, row cluster.Cluster, old *Client, t target) {
	l, err := newLink(s.id, t, r.o.AllowCIDRs, r.o.ProxyFromEnvironment, r.o.Observer)
	var c *Client
	if err == nil {
		if t.backend == nil {
			l.renew = func(ctx context.Context, used *credentials, wait bool) bool { return r.renew(ctx, s, l, used, wait) }
		}
		c, err = newClient(l, r.namespace(row), s.limiter, r.o.UserAgent)
	}
	if err != nil {
		r.failed(s, old, true, err)
		return
	}
	r.finish(s, func() {
		if s.dropped {
			l.close(0)
			return
		}
		if old != nil {
			r.drainLocked(old.link)
		}
		s.client = c
		r.goodLocked(s, row)
	})
}

// finish applies the outcome of an attempt and wakes those who wait for it.
func (r *Registry) finish(s *slot, outcome func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	outcome()
	close(s.building)
	s.building = nil
	if s.again && !s.dropped && !r.closed {
		s.again = false
		r.startLocked(s)
	}
}

func (r *Registry) goodLocked(s *slot, row cluster.Cluster) {
	s.config, s.kind = row.ConfigRevision, row.Type
	s.checkedAt, s.err, s.failures, s.forced = time.Now(), nil, 0, false
	s.retryAt = time.Time{}
	s.client.link.stale.Store(nil)
}

func (r *Registry) failLocked(s *slot, err error) {
	s.err = err
	s.retryAt = time.Now().Add(backoff(s.failures))
	s.failures++
}

func (r *Registry) namespace(row cluster.Cluster) string {
	if row.Namespace != "" {
		return row.Namespace
	}
	return r.o.DefaultNamespace
}

func renewDue(c *credentials, now time.Time) bool { return !c.renewAt.IsZero() && now.After(c.renewAt) }

// postpone keeps a link from asking for new credentials before at.
func postpone(l *link, at time.Time) {
	w := l.current.Load()
	if !w.creds.renewAt.IsZero() {
		later := *w
		creds := *w.creds
		creds.renewAt = at
		later.creds = &creds
		l.mu.Lock()
		delete(l.wires, w)
		l.wires[&later] = struct{}{}
		l.current.Store(&later)
		l.mu.Unlock()
	}
}

// renew is called by a link whose credentials end soon, or were rejected with wait set. It reports whether the link has
// others now than those used.
func (r *Registry) renew(ctx context.Context, s *slot, l *link, used *credentials, wait bool) bool {
	for l.current.Load().creds.same(used) {
		r.mu.Lock()
		if r.closed || s.dropped || s.client == nil || s.client.link != l {
			r.mu.Unlock()
			return false
		}
		if wait && s.building == nil {
			if time.Since(s.rejectedAt) < rejectedPause {
				r.mu.Unlock()
				return false
			}
			s.rejectedAt = time.Now()
			s.forced = true
		}
		building := r.startLocked(s)
		r.mu.Unlock()
		if !wait {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-building: // perhaps no more than a look at the row: then the provider is asked now
		}
	}
	return true
}
