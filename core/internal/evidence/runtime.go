package evidence

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

// stretch is one run of a main container; a zero end: it runs.
type stretch struct{ start, end time.Time }

// account adds up how long the runs have run, those included whose pod is gone. Runs follow one another, so the start of
// the latest one tells which are counted already. The time in between, suspended or waiting, does not count.
func account(f *Finding, in Input, pods []*corev1.Pod) {
	f.Ran, f.RunStartedAt, f.RunEnded = in.Attempt.Ran, in.Attempt.RunStartedAt, in.Attempt.RunEnded
	open := func() bool { return f.RunStartedAt != nil && !f.RunEnded }
	since := func(start, end time.Time) time.Duration {
		// A cluster's clock that is behind ours makes no run longer than the Job is old.
		if made := in.Attempt.JobAt; made != nil && start.Before(*made) && end.After(*made) {
			start = *made
		}
		return max(0, end.Sub(start))
	}
	seen := false
	for _, s := range stretches(pods) {
		switch {
		case f.RunStartedAt == nil || s.start.After(*f.RunStartedAt):
			if open() {
				f.Ran += since(*f.RunStartedAt, s.start) // nobody saw its end
			}
			f.RunStartedAt, f.RunEnded = utc(s.start), false
		case !s.start.Equal(*f.RunStartedAt) || f.RunEnded:
			continue // counted
		}
		seen = true
		if !s.end.IsZero() {
			f.Ran, f.RunEnded = f.Ran+max(0, s.end.Sub(s.start)), true
		}
	}
	if open() && !seen && !in.Now.IsZero() {
		f.Ran, f.RunEnded = f.Ran+since(*f.RunStartedAt, in.Now), true
	}
}

func stretches(pods []*corev1.Pod) (all []stretch) {
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name != job.MainContainer {
				continue
			}
			if r := c.State.Running; r != nil && !r.StartedAt.IsZero() {
				all = append(all, stretch{start: r.StartedAt.UTC().Truncate(time.Microsecond)})
			}
			if t := c.State.Terminated; t != nil && !t.StartedAt.IsZero() {
				all = append(all, stretch{t.StartedAt.UTC().Truncate(time.Microsecond), t.FinishedAt.UTC()})
			}
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.start.Compare(b.start) })
	return all
}
