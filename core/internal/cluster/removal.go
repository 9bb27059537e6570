package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Remover ends what lives on a cluster that is about to be removed.
type Remover interface {
	// Abandon ends every live attempt of the cluster and says what became of it. It deletes Jobs as far as the cluster
	// answers within a short bound, and returns promptly although it does not. Nothing that works for the cluster goes on
	// when it has returned. It may be called again after an error.
	Abandon(ctx context.Context, c Cluster) (Abandonment, error)
	// Readmit says that the cluster is not removed after all.
	Readmit(id string)
}

// Abandonment is what became of the live attempts of a cluster.
type Abandonment struct {
	Reached  bool // the cluster answered
	Attempts []AbandonedAttempt
}

// AbandonedAttempt is what became of one.
type AbandonedAttempt struct {
	AttemptID, VersionID string
	Was, State           string // as package process has them
	Reason               string
	Namespace, JobName   string
	MayStillRun          bool
}

// removals bounds how often Remove begins anew because something was placed meanwhile.
const removals = 3

// Remove removes a cluster by force: it is retired, so that nothing new comes, its live attempts are ended, and then its
// row goes. When it fails half-way the cluster stays retired, and it may be called again.
func (s *Service) Remove(ctx context.Context, id string, revision *int64) (Cluster, Abandonment, error) {
	c, err := s.removable(ctx, id, revision)
	if err != nil {
		return c, Abandonment{}, err
	}
	if _, err := s.store.UpdateCluster(ctx, id, revision, func(c *Cluster) error { c.Active = false; return nil }); err != nil {
		return c, Abandonment{}, refusal(c.Name, err)
	}
	sum := Abandonment{Reached: true}
	for range removals {
		var some Abandonment
		if some, err = s.remover.Abandon(ctx, c); err != nil {
			err = fmt.Errorf("end what lives on cluster %q: %w", c.Name, err)
			break
		}
		sum.Reached = sum.Reached && some.Reached
		sum.Attempts = append(sum.Attempts, some.Attempts...)
		if err = s.store.DeleteCluster(ctx, id); !errors.Is(err, ErrInUse) {
			break // else a decision of before was stored only now
		}
	}
	if err != nil {
		s.remover.Readmit(id)
		return c, sum, refusal(c.Name, err)
	}
	return c, sum, nil
}

// removable returns a cluster that may be removed as far as its row says.
func (s *Service) removable(ctx context.Context, id string, revision *int64) (Cluster, error) {
	c, err := s.store.Cluster(ctx, id)
	if err != nil {
		return c, err
	}
	if revision != nil && *revision != c.Revision {
		return c, refusal(c.Name, ErrStale)
	}
	def, err := s.store.DefaultCluster(ctx)
	if err != nil {
		return c, err
	}
	if def == id {
		return c, problem.New(problem.ClusterInUse, "cluster %q is the default cluster: set another one first", c.Name).With("default", true)
	}
	return c, nil
}

// Delete removes a cluster that nothing lives on and that is not the default one.
func (s *Service) Delete(ctx context.Context, id string, revision *int64) error {
	c, err := s.removable(ctx, id, revision)
	if err != nil {
		return err
	}
	if err := s.unused(ctx, c, "it cannot be removed; cancel them or wait, and set active to false meanwhile, or remove it by force"); err != nil {
		return err
	}
	if err := s.store.DeleteCluster(ctx, id); err != nil {
		return refusal(c.Name, err)
	}
	return nil
}
