package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Reason codes of what is observed.
const (
	reasonRemoved        = "job-removed"
	reasonClusterChanged = "cluster-changed"
)

const (
	// reasonPause is the least time between two stored reasons of one attempt while its state stays the same.
	reasonPause = time.Second
	// eventsAfter is how long a Job may be without a pod before the cluster's events are read for the cause.
	eventsAfter = 5 * time.Second
	// lagging is how long the watch may take to show a Job that was just made, and when to look again at what it has not
	// shown yet.
	lagging = time.Second
	// outOfStep is how long one of the two watches may be behind the other before the cluster is asked.
	outOfStep = 50 * time.Millisecond
	// maxOthers bounds what is remembered of Jobs that are not ours to look after.
	maxOthers = 10_000
)

// changedOnCluster is told of every attempt whose Job or pods changed.
func (w *worker) changedOnCluster(id string) {
	if id != "" && !w.wake(id) {
		w.looks.Add(id) // to be met
	}
}

// pods returns the attempt's pods as the watch shows them.
func (w *worker) pods(row process.Attempt) []*corev1.Pod { return w.watch.PodsOf(row.ID) }

// seen returns the attempt's Job as the watch shows it; nil: it does not. A Job of another UID is not the attempt's.
func (w *worker) seen(row process.Attempt) *batchv1.Job {
	j := w.watch.Job(row.Namespace, row.JobName)
	if j == nil || row.JobUID != "" && row.JobUID != string(j.UID) || !job.Owned(j.Labels, w.d.o.Installation, row.ID) {
		return nil
	}
	return j
}

// synced says whether absence from the watch means anything.
func (w *worker) synced(row process.Attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.watches(row.Namespace) || w.watch.Synced()
}

// trusted says whether what the watch shows of the attempt can be relied upon; a doubt holds for one look.
func (w *worker) trusted(a *attempt, row process.Attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	suspect := a.suspect
	a.suspect = false
	return !suspect && w.watches(row.Namespace)
}

// observe brings the row to what the cluster shows.
func (w *worker) observe(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if !w.synced(row) {
		return 0, nil // the first full list wakes everyone
	}
	j, pods, again := w.seen(row), w.pods(row), time.Duration(0)
	if trusted := w.trusted(a, row); j == nil || !trusted {
		if last := w.watch.Removed(uidOf(row)); last != nil {
			if f := evidence.Read(evidence.Input{Job: last, Pods: pods, Attempt: row}); f.State.Terminal() {
				_, err := w.found(ctx, a, row, f)
				return 0, err
			}
		} else if left := w.showing(row); j == nil && trusted && left > 0 {
			return left, nil
		}
		live, err := w.get(ctx, row.Namespace, row.JobName)
		if err != nil {
			return 0, err
		}
		if live == nil || string(live.UID) != row.JobUID {
			return w.lost(ctx, a, row, live)
		}
		if pods, err = w.podsOf(ctx, row.Namespace, row.ID); err != nil {
			return 0, err
		}
		j = live
		if again = lagging; !trusted {
			again = w.d.o.Resync
		}
	}
	w.d.o.Logs.Ensure(row, pods)

	f, err := w.read(ctx, a, row, j, pods)
	if errors.Is(err, errOutOfStep) {
		return outOfStep, nil
	}
	if err != nil {
		return 0, err
	}
	if pause := reasonPause - w.d.now().Sub(a.reasonAt); pause > 0 && onlyReason(row, f) {
		return pause, nil
	}
	next, err := w.found(ctx, a, row, f)
	if err != nil || next.State.Terminal() {
		return 0, err
	}
	left, err := w.left(ctx, a, next)
	if err != nil {
		return 0, err
	}
	if f.NeedsEvents || f.NeedsQueue {
		left = sooner(left, eventsAfter)
	}
	return sooner(left, again), nil
}

// errOutOfStep: the Job is seen to have ended and its pod is not.
var errOutOfStep = errors.New("the watches are not in step")

// showing says how much longer the watch may take to show a Job that was just made.
func (w *worker) showing(row process.Attempt) time.Duration {
	if row.JobAt == nil || !w.watched(row.Namespace) {
		return 0
	}
	return lagging - w.d.now().Sub(*row.JobAt)
}

// read asks evidence, and fetches what it lacks to be sure.
func (w *worker) read(ctx context.Context, a *attempt, row process.Attempt, j *batchv1.Job, pods []*corev1.Pod) (evidence.Finding, error) {
	in := evidence.Input{Job: j, Pods: pods, Gone: w.watch.RemovedPods(row.ID), Attempt: row, Cluster: w.row().Name, Now: w.d.now()}
	f := evidence.Read(in)
	switch {
	case f.State.Terminal() && (f.StartedAt == nil || slices.ContainsFunc(pods, alive)):
		// The two watches are not in step, and what is stored at the end is final. Mostly the pod comes at once.
		if a.stepAt.IsZero() {
			a.stepAt = w.d.now()
		}
		if w.d.now().Sub(a.stepAt) < outOfStep {
			return f, errOutOfStep
		}
		fresh, err := w.podsOf(ctx, row.Namespace, row.ID)
		if err != nil {
			return f, err
		}
		if len(fresh) > 0 {
			w.d.o.Logs.Ensure(row, fresh)
			in.Pods = fresh
		}
		return evidence.Read(in), nil
	case row.JobAt == nil || w.d.now().Sub(*row.JobAt) < eventsAfter:
	case f.NeedsQueue:
		if w.d.now().Sub(a.queueAt) >= w.d.o.Resync/2 && w.eventReads.TryAccept() {
			queue, err := w.queueOf(ctx, j)
			if err != nil && (errors.Is(err, errParked) || unanswered(err)) {
				return f, err
			}
			a.queue, a.queueAt = queue, w.d.now()
		}
		if in.Queue = a.queue; in.Queue != nil {
			return evidence.Read(in), nil
		}
	case f.NeedsEvents:
		if w.d.now().Sub(a.eventsAt) >= w.d.o.Resync/2 && w.eventReads.TryAccept() {
			events, err := w.eventsOf(ctx, j.UID)
			if err != nil && (errors.Is(err, errParked) || unanswered(err)) {
				return f, err
			}
			a.events, a.eventsAt = events, w.d.now() // without the right to read them there are none
		}
		if !a.eventsAt.IsZero() {
			in.Events = append([]corev1.Event{}, a.events...)
			f = evidence.Read(in)
			f.NeedsEvents = false
		}
	}
	return f, nil
}

// found stores a finding.
func (w *worker) found(ctx context.Context, a *attempt, row process.Attempt, f evidence.Finding) (process.Attempt, error) {
	now, name := w.d.now(), w.row().Name
	next, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) { return apply(a, f, name, now) })
	if err == nil && next.Revision != row.Revision {
		a.reasonAt = now
	}
	return next, err
}

// apply brings an attempt to a finding. Whatever happened between two looks is told: a start that was over before it was
// seen is one of the events.
func apply(a *process.Attempt, f evidence.Finding, clusterName string, now time.Time) ([]event.Event, error) {
	if a.State.Terminal() || a.State == process.Placing || a.State == process.Cancelling && !f.State.Terminal() {
		return nil, process.ErrNoChange
	}
	var events []event.Event
	started := f.Runs > a.Runs
	if started {
		events = runsStarted(a.Runs, f.Runs)
		a.Runs = f.Runs
	}
	learned := started
	if f.Ran != a.Ran || f.RunEnded != a.RunEnded || (f.RunStartedAt == nil) != (a.RunStartedAt == nil) ||
		f.RunStartedAt != nil && !f.RunStartedAt.Equal(*a.RunStartedAt) {
		a.Ran, a.RunStartedAt, a.RunEnded, learned = f.Ran, f.RunStartedAt, f.RunEnded, true
	}
	// While the cause is not read again, as after a restart, the clock goes on.
	if !f.NeedsEvents && !f.NeedsQueue || f.State != process.Queued {
		learned = block(a, f.Blocked(), now) || learned
	}
	if a.StartedAt == nil && f.StartedAt != nil {
		a.StartedAt, learned = f.StartedAt, true
	}
	if f.ExitCode != nil && (a.ExitCode == nil || *a.ExitCode != *f.ExitCode) {
		code := *f.ExitCode
		a.ExitCode, learned = &code, true
	}
	switch {
	case a.State != f.State:
		if f.State.Terminal() {
			events = append(back(a, clusterName, now), events...)
			at := now
			if f.EndedAt != nil {
				at = *f.EndedAt
			}
			a.EndedAt = &at
		}
		a.State, a.ReasonCode, a.Reason = f.State, f.ReasonCode, f.Reason
		events = append(events, changedTo(f.Reason))
	case a.ReasonCode != f.ReasonCode || a.Reason != f.Reason:
		a.ReasonCode, a.Reason = f.ReasonCode, f.Reason
		events = append(events, reasonNow(f.Reason))
	case !learned:
		return nil, process.ErrNoChange
	}
	return events, nil
}

// onlyReason says whether the finding brings nothing but another reason.
func onlyReason(row process.Attempt, f evidence.Finding) bool {
	return row.State == f.State && row.Runs == f.Runs && (row.StartedAt == nil) == (f.StartedAt == nil)
}

// lost ends an attempt whose Job the cluster says is gone, if it is the cluster that had it.
func (w *worker) lost(ctx context.Context, a *attempt, row process.Attempt, other *batchv1.Job) (time.Duration, error) {
	name := w.row().Name
	same, err := w.sameCluster(ctx, row.ClusterIdentity, row.Namespace)
	if err != nil {
		return 0, err
	}
	if !same {
		_, err := w.say(ctx, a, row, reasonClusterChanged, fmt.Sprintf(
			"Another cluster answers under the entry %q than the one that the Job was created on. Correct its connection.", name))
		return w.d.o.Resync, err
	}
	reason := fmt.Sprintf("The Job no longer exists on cluster %q: it was removed before its result was read.", name)
	if other != nil {
		reason = fmt.Sprintf("The Job no longer exists on cluster %q: it was removed before its result was read, and another one has its name.", name)
	}
	now := w.d.now()
	_, err = w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State.Terminal() || a.State == process.Cancelling || a.JobUID == "" {
			return nil, process.ErrNoChange
		}
		events := back(a, name, now)
		end(a, process.Unknown, reasonRemoved, reason, now)
		return append(events, changedTo(reason)), nil
	})
	return 0, err
}

// flag notes beside the state that the cluster cannot be reached, and that it can again.
func (w *worker) flag(ctx context.Context, a *attempt, row process.Attempt) (process.Attempt, error) {
	since, cause := w.reach.down()
	switch name := w.row().Name; {
	case since != nil && row.UnreachableSince == nil:
		return w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
			if a.State.Terminal() || a.UnreachableSince != nil {
				return nil, process.ErrNoChange
			}
			a.UnreachableSince = since
			return []event.Event{outOfReach(name, *since, cause)}, nil
		})
	case row.UnreachableSince != nil && w.reach.answers() && w.watch.Synced():
		now := w.d.now()
		return w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
			if a.State.Terminal() || a.UnreachableSince == nil {
				return nil, process.ErrNoChange
			}
			unblock(a, now.Sub(*a.UnreachableSince))
			return back(a, name, now), nil
		})
	}
	return row, nil
}

// alive says whether a pod may still have running containers.
func alive(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// sooner is the smaller of two pauses; zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// uidOf is the UID that the attempt's Job is known by.
func uidOf(row process.Attempt) types.UID { return types.UID(row.JobUID) }
