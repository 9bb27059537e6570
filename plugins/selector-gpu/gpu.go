package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// gpuSelector places jobs that ask for GPUs:
//
//   - what no node could ever hold is refused, with the numbers;
//   - what fits now goes to the least loaded of the clusters where it fits now;
//   - what fits but is busy goes to the least loaded of the clusters where it fits, and queues there;
//   - where capacity is unknown only clusters that an admin has opted in by label are used;
//   - what only a cluster could hold that takes no placements now, or one that is not known, waits;
//   - a job that asks for no GPU is not its business.
type gpuSelector struct {
	rules rules
}

var (
	_ selector.Selector = (*gpuSelector)(nil)
	_ sdk.Configurable  = (*gpuSelector)(nil)
)

// SelectCluster answers from the snapshot alone: it calls nobody and keeps nothing.
func (g *gpuSelector) SelectCluster(_ context.Context, r selector.Request) (selector.Answer, error) {
	asked, err := needsOf(r.Version, g.rules.pattern)
	if err != nil {
		return selector.Answer{}, err
	}
	if len(asked.gpus) == 0 {
		return selector.Abstain("asks for no GPU"), nil
	}
	var fitting, unknown []selector.Cluster
	for _, c := range r.Candidates {
		switch {
		case c.Capacity == nil:
			unknown = append(unknown, c)
		case len(asked.lacking(c.Capacity)) == 0:
			fitting = append(fitting, c)
		}
	}
	if len(fitting) > 0 {
		return pick(asked, fitting), nil
	}
	vouched := slices.DeleteFunc(slices.Clone(unknown), func(c selector.Cluster) bool { return !g.rules.optedIn(c.Labels) })
	if len(vouched) > 0 {
		c := slices.MinFunc(vouched, func(a, b selector.Cluster) int { return cmp.Compare(a.ActiveAttempts, b.ActiveAttempts) })
		return selector.Select(c.ID, fmt.Sprintf("needs %s; the nodes of %s cannot be read, and its label %s says that it takes GPU jobs",
			asked, c.Name, g.rules.label)), nil
	}
	return g.refuse(asked, r, unknown), nil
}

// pick chooses among clusters that have a node for it: one where it fits now if there is any, and of those the least
// loaded; the admin's order decides between equals.
func pick(asked needs, fitting []selector.Cluster) selector.Answer {
	free := slices.DeleteFunc(slices.Clone(fitting), func(c selector.Cluster) bool { return !asked.fitsNow(c.Capacity) })
	among := fitting
	if len(free) > 0 {
		among = free
	}
	c := slices.MinFunc(among, func(a, b selector.Cluster) int {
		return cmp.Or(cmp.Compare(asked.load(a.Capacity), asked.load(b.Capacity)), cmp.Compare(a.ActiveAttempts, b.ActiveAttempts))
	})
	if len(free) > 0 {
		return selector.Select(c.ID, fmt.Sprintf("needs %s; %s has room for it on one node, with %s", asked, c.Name, asked.freeOn(c.Capacity)))
	}
	return selector.Select(c.ID, fmt.Sprintf("needs %s; it is queued on %s, the least loaded of the clusters that can hold it, with %s",
		asked, c.Name, asked.freeOn(c.Capacity)))
}

// refuse says why no candidate takes it, and whether that may change: it fails only when every cluster that could come
// to take it is known, and is too small.
func (g *gpuSelector) refuse(asked needs, r selector.Request, unknown []selector.Cluster) selector.Answer {
	known := slices.DeleteFunc(slices.Clone(r.Candidates), func(c selector.Cluster) bool { return c.Capacity == nil })
	for _, c := range r.Ineligible {
		switch {
		case c.Capacity == nil:
			if g.rules.optedIn(c.Labels) {
				return selector.Wait(fmt.Sprintf("needs %s; %s may have it, but takes no jobs now: %s", asked, c.Name, c.Reason))
			}
			unknown = append(unknown, c.Cluster)
		case len(asked.lacking(c.Capacity)) == 0:
			return selector.Wait(fmt.Sprintf("needs %s; %s can hold it, but takes no jobs now: %s", asked, c.Name, c.Reason))
		default:
			known = append(known, c.Cluster)
		}
	}
	reason, exists := asked.shortage(known)
	switch {
	case len(unknown) > 0:
		return selector.Wait(fmt.Sprintf("%s; what %s can hold is not known, label it %s if it takes GPU jobs", reason, names(unknown), g.rules.label))
	case len(known) == 0:
		return selector.Wait(fmt.Sprintf("needs %s; there is no cluster to choose from", asked))
	case !exists && !r.IneligibleKnown:
		return selector.Wait(reason + "; a cluster that takes no jobs now might have it")
	}
	return selector.Refuse(reason)
}
