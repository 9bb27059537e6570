package cluster

import (
	"context"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// ForeignLease is a Lease in a job namespace that another database wrote: another installation's, or that of a copy of
// this one. While it stands unconfirmed, nothing is created or deleted there.
type ForeignLease struct {
	Namespace string    `json:"namespace"`
	Holder    string    `json:"holder"` // id of the installation that holds it
	Writer    string    `json:"writer"` // the server that wrote it last
	Message   string    `json:"message"`
	Since     time.Time `json:"since"`
	// ConfirmedBy is the admin who said that this installation takes the namespace over; empty: nobody has.
	ConfirmedBy string     `json:"confirmed_by,omitempty"`
	ConfirmedAt *time.Time `json:"confirmed_at,omitempty"`
}

// TakeOver says that the job namespace is this installation's, whoever wrote there before. Confirming twice is no error.
func (s *Service) TakeOver(ctx context.Context, id, by string) (Cluster, error) {
	at := time.Now().UTC().Truncate(time.Microsecond)
	return s.store.UpdateCluster(ctx, id, nil, func(c *Cluster) error {
		if c.Lease == nil {
			return problem.New(problem.Invalid, "cluster %q has nothing to take over: no other database's Lease stands in its job namespace", c.Name)
		}
		if c.Lease.ConfirmedAt == nil {
			next := *c.Lease
			next.ConfirmedBy, next.ConfirmedAt = by, &at
			c.Lease = &next
		}
		return nil
	})
}
