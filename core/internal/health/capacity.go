package health

import (
	"context"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/capacity"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// readCapacity reads nodes and pods when it is time to, and returns the attempts that hold a place on a node; nil when
// nothing was read. An account that may not list nodes leaves the capacity unknown, which is not zero.
func (c *check) readCapacity(ctx context.Context, client *kube.Client, now time.Time) map[string]bool {
	if now.Sub(c.capacityAt) < c.m.o.CapacityEvery*9/10 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.o.CapacityTimeout)
	defer cancel()
	c.mu.Lock()
	c.stopReading = cancel
	c.mu.Unlock()
	narrow := now.Sub(c.podsDenied) <= slowFacts
	seen, err := capacity.Read(ctx, client, narrow)
	if err != nil {
		return nil // a passing fault keeps the old figures, whose age says so
	}
	if seen.Narrow && !narrow {
		c.podsDenied = now
	}
	c.seen.Capacity, c.capacityAt = seen.Capacity, now
	switch {
	case seen.Capacity == nil:
		c.set(cluster.CapacityKnown, cluster.False, string(kube.Permissions), "The account may not list nodes: selectors go by labels alone.", now)
	case seen.Narrow:
		c.set(cluster.CapacityKnown, cluster.True, reasonNarrow, "The account may not list the pods of all namespaces: what others use counts as free.", now)
	default:
		c.set(cluster.CapacityKnown, cluster.True, "", "", now)
	}
	return seen.Attempts
}
