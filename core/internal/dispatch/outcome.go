package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func (p *placing) store(ctx context.Context, a process.Attempt, v process.Version, dec placement.Decision, asked int64) error {
	switch dec.Outcome {
	case placement.Placed:
		return p.placed(ctx, a, v, dec)
	case placement.Wait:
		return p.wait(ctx, a, dec, asked)
	case placement.Retry:
		return p.retry(ctx, a, dec)
	case placement.Fail:
		return p.failed(ctx, dec)
	}
	return fmt.Errorf("decision with the unknown outcome %q", dec.Outcome)
}

// placed stores the decision, the pin and the intent to create in one write, and hands the attempt to its cluster.
func (p *placing) placed(ctx context.Context, a process.Attempt, v process.Version, dec placement.Decision) error {
	c, err := p.d.o.Store.Cluster(ctx, dec.ClusterID)
	if err != nil {
		p.d.o.Ledger.Release(a.ID)
		return fmt.Errorf("read cluster %s: %w", dec.ClusterID, err)
	}
	namespace := c.Namespace
	if namespace == "" {
		namespace = p.d.o.DefaultNamespace
	}
	now := p.d.now()
	p.d.fleet.expect(a.ID)
	row, err := p.d.o.Store.Decide(ctx, dec, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Placing {
			return nil, process.ErrNoChange
		}
		pin(a, c, namespace, v.ProcessName)
		a.State, a.ReasonCode, a.Reason = process.Creating, dec.ReasonCode, dec.Reason
		a.PlacedAt = &now
		a.Tries, a.ErrorSince = 0, nil
		intend(a, now, p.d.o.CreateWindow)
		return []event.Event{decided(dec), changedTo(dec.Reason)}, nil
	})
	if err != nil {
		// The write may have been made all the same: then the cluster's workers must know.
		p.d.o.Ledger.Release(a.ID)
		p.d.fleet.reload(ctx, a.ID)
		return fmt.Errorf("store the decision: %w", err)
	}
	p.waiting.remove(a.ID)
	if row.State != process.Creating || row.ClusterID != dec.ClusterID {
		p.d.fleet.expected(a.ID) // cancelled meanwhile
		p.d.o.Ledger.Release(a.ID)
		return nil
	}
	p.d.fleet.take(row, &v)
	return nil
}

// wait leaves the attempt for the next change. A decision that says the same as the last is not stored again.
func (p *placing) wait(ctx context.Context, a process.Attempt, dec placement.Decision, asked int64) error {
	now := p.d.now()
	next := now.Add(p.d.o.WaitRecheck + rand.N(p.d.o.WaitRecheck/4+1))
	if a.ErrorSince == nil && same(a, dec) {
		if !a.NextTryAt.After(now) {
			if err := p.postpone(ctx, a.ID, next); err != nil {
				return err
			}
		}
		p.waiting.add(a.ID, asked)
		return nil
	}
	row, err := p.d.o.Store.Decide(ctx, dec, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Placing {
			return nil, process.ErrNoChange
		}
		a.ReasonCode, a.Reason = dec.ReasonCode, dec.Reason
		a.NextTryAt, a.Tries, a.ErrorSince = next, 0, nil
		return []event.Event{decided(dec)}, nil
	})
	if err != nil {
		return fmt.Errorf("store the decision: %w", err)
	}
	if row.State == process.Placing {
		p.waiting.add(a.ID, asked)
	}
	return nil
}

func (p *placing) postpone(ctx context.Context, id string, next time.Time) error {
	_, err := p.d.o.Store.UpdateAttempt(ctx, id, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Placing {
			return nil, process.ErrNoChange
		}
		a.NextTryAt = next
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("store the next try: %w", err)
	}
	return nil
}

// retry asks again after a pause, or fails the attempt when selectors have failed for too long.
func (p *placing) retry(ctx context.Context, a process.Attempt, dec placement.Decision) error {
	p.waiting.remove(a.ID)
	now := p.d.now()
	if a.ErrorSince != nil && now.Sub(*a.ErrorSince) >= p.d.o.PlacingErrorLimit {
		dec.Outcome = placement.Fail
		dec.Reason = fmt.Sprintf("placing failed for %s, the limit: %s", p.d.o.PlacingErrorLimit, dec.Reason)
		dec.ReasonCode = reasonErrorLimit
		return p.failed(ctx, dec)
	}
	next := now.Add(pauseAfter(a.Tries))
	change := func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Placing {
			return nil, process.ErrNoChange
		}
		a.NextTryAt = next
		a.Tries++
		if a.ErrorSince == nil {
			a.ErrorSince = &now
		}
		if same(*a, dec) {
			return nil, nil
		}
		a.ReasonCode, a.Reason = dec.ReasonCode, dec.Reason
		return []event.Event{decided(dec)}, nil
	}
	var err error
	if a.ErrorSince != nil && same(a, dec) {
		_, err = p.d.o.Store.UpdateAttempt(ctx, a.ID, change)
	} else {
		_, err = p.d.o.Store.Decide(ctx, dec, change)
	}
	if err != nil {
		return fmt.Errorf("store the next try: %w", err)
	}
	p.retryAt(next)
	return nil
}

func (p *placing) failed(ctx context.Context, dec placement.Decision) error {
	now := p.d.now()
	_, err := p.d.o.Store.Decide(ctx, dec, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Placing {
			return nil, process.ErrNoChange
		}
		a.State, a.ReasonCode, a.Reason = process.Failed, dec.ReasonCode, dec.Reason
		a.EndedAt = &now
		return []event.Event{decided(dec), changedTo(dec.Reason)}, nil
	})
	if err != nil {
		return fmt.Errorf("store the decision: %w", err)
	}
	p.waiting.remove(dec.AttemptID)
	return nil
}

// same says whether the attempt shows the decision already.
func same(a process.Attempt, dec placement.Decision) bool {
	return a.ReasonCode == dec.ReasonCode && a.Reason == dec.Reason
}

// pauseAfter grows with the number of failures; a fifth of it is chance, so that many do not come back at once.
func pauseAfter(failures int32) time.Duration {
	pause := retryMost
	if failures < 10 {
		pause = min(retryMost, retryFirst<<max(failures, 0))
	}
	return pause*9/10 + rand.N(pause/5)
}
