package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Reason codes of stopping.
const (
	reasonCancelled   = "cancelled"
	reasonStopping    = "stopping"
	reasonUnreachable = "cluster-unreachable"
)

// stopAgain is how often a stop under way is looked at when the watch says nothing.
const stopAgain = 5 * time.Second

// cancelled carries a cancel out: nothing of the attempt runs any more before it is over.
func (w *worker) cancelled(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if row.JobUID == "" {
		next, after, err := w.settleCreate(ctx, a, row)
		if err != nil || next.JobUID == "" {
			if since, _ := w.reach.down(); since != nil && !next.State.Terminal() {
				return 0, w.sayUnreachable(ctx, a, next, *since)
			}
			return after, err
		}
		row = next
	}
	if since, _ := w.reach.down(); since != nil {
		return 0, w.sayUnreachable(ctx, a, row, *since)
	}
	s, err := w.stopJob(ctx, a, row)
	switch {
	case err != nil:
		return 0, w.sayHeld(ctx, a, row, err)
	case s.truth != nil:
		_, err := w.found(ctx, a, row, *s.truth)
		return 0, err
	case !s.stopped:
		_, err := w.say(ctx, a, row, reasonStopping, s.note)
		return sooner(s.after, stopAgain), err
	}
	return 0, w.endCancelled(ctx, a, row, s.note)
}

func (w *worker) sayUnreachable(ctx context.Context, a *attempt, row process.Attempt, since time.Time) error {
	if _, err := w.say(ctx, a, row, reasonUnreachable, fmt.Sprintf(
		"Cancel requested; cluster %q has been unreachable since %s. It is carried out when the cluster returns.",
		w.row().Name, since.Format(time.RFC3339))); err != nil {
		return err
	}
	return errParked
}

// settleCreate finds out whether an attempt that is being cancelled has a Job: a create that has no answer yet may still
// make one. The row that it returns has the Job's UID, has ended, or is to be looked at again after the pause.
func (w *worker) settleCreate(ctx context.Context, a *attempt, row process.Attempt) (process.Attempt, time.Duration, error) {
	found := w.seen(row)
	if found == nil && a.sent == sentMaybe {
		live, after, err := w.lookFor(ctx, a, row)
		if err != nil {
			return row, 0, err
		}
		switch {
		case live != nil && job.Owned(live.Labels, w.d.o.Installation, row.ID):
			found = live
		case live != nil && w.landing(row) > 0:
			return row, lookAgain, nil // a stranger's, that may go and let ours in
		case live == nil && a.sent == sentMaybe:
			next, err := w.say(ctx, a, row, reasonUnsure, "Cancel requested; a create request without an answer may still take effect.")
			return next, after, err
		}
	}
	if found == nil {
		err := w.endCancelled(ctx, a, row, "No Job was created.")
		return w.current(a), 0, err
	}
	err := w.adopt(ctx, a, row, found)
	return w.current(a), 0, err
}

func (w *worker) current(a *attempt) process.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a.row
}

func (w *worker) endCancelled(ctx context.Context, a *attempt, row process.Attempt, note string) error {
	reason := strings.TrimSpace("Cancelled. " + note)
	now, name := w.d.now(), w.row().Name
	_, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Cancelling {
			return nil, process.ErrNoChange
		}
		events := back(a, name, now)
		end(a, process.Cancelled, reasonCancelled, reason, now)
		return append(events, changedTo(reason)), nil
	})
	return err
}

// stop is how far stopping a Job has come.
type stop struct {
	truth   *evidence.Finding // it had ended by itself
	stopped bool              // the cluster confirms that nothing of it runs
	note    string            // a sentence for people
	after   time.Duration     // when to look again
}

// stopJob deletes the Job and its pods and says how far that is. A Job that has ended is not deleted: what it came to
// is the truth, whoever was quicker.
func (w *worker) stopJob(ctx context.Context, a *attempt, row process.Attempt) (stop, error) {
	j, pods := w.seen(row), w.pods(row)
	if trusted := w.trusted(a, row); j == nil || !trusted {
		if j = w.watch.Removed(uidOf(row)); j != nil {
			if f := evidence.Read(evidence.Input{Job: j, Pods: pods, Attempt: row}); f.State.Terminal() {
				return stop{truth: &f}, nil
			}
		}
		live, err := w.get(ctx, row.Namespace, row.JobName)
		if err != nil {
			return stop{}, err
		}
		if j = live; j != nil && j.UID != uidOf(row) {
			j = nil // a stranger's
		}
	}
	if j != nil {
		f, err := w.read(ctx, a, row, j, pods)
		if err != nil {
			return stop{}, err
		}
		if f.State.Terminal() {
			return stop{truth: &f}, nil
		}
		if j.DeletionTimestamp == nil {
			if !slices.ContainsFunc(pods, alive) {
				// The watch may lag behind, and a pod that goes before anybody saw it leaves no log and no word of one.
				fresh, err := w.podsOf(ctx, row.Namespace, row.ID)
				if err != nil {
					return stop{}, err
				}
				pods = fresh
			}
			w.d.o.Logs.Ensure(row, pods) // what was printed goes with the pods
			return w.delete(ctx, a, row, j)
		}
		// A finalizer of somebody else keeps the Job, and only a foreground deletion takes the pods before it has gone.
		if len(j.Finalizers) > 0 && !slices.Contains(j.Finalizers, metav1.FinalizerDeleteDependents) && slices.ContainsFunc(pods, alive) {
			if _, err := w.delete(ctx, a, row, j); err != nil {
				return stop{}, err
			}
		}
	}
	return w.remains(ctx, a, row, j, pods)
}

func (w *worker) delete(ctx context.Context, a *attempt, row process.Attempt, j *batchv1.Job) (stop, error) {
	s := stop{note: "The Job is being deleted.", after: stopAgain}
	if now := w.d.now(); now.Sub(a.asked) >= stopAgain {
		propagation := metav1.DeletePropagationBackground
		if len(j.Finalizers) > 0 {
			propagation = metav1.DeletePropagationForeground
		}
		if err := w.removeBy(ctx, row.Namespace, row.JobName, uidOf(row), propagation); err != nil {
			return stop{}, err
		}
		a.asked = now
	}
	return s, nil
}

// remains looks at what is left of a Job that is deleted, or being deleted.
func (w *worker) remains(ctx context.Context, a *attempt, row process.Attempt, j *batchv1.Job, pods []*corev1.Pod) (stop, error) {
	if !slices.ContainsFunc(pods, alive) {
		fresh, err := w.podsOf(ctx, row.Namespace, row.ID)
		if err != nil {
			return stop{}, err
		}
		pods = fresh
		w.d.o.Logs.Ensure(row, pods)
	}
	running := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !alive(p) })
	switch {
	case len(running) > 0:
		return stop{note: fmt.Sprintf("The Job is deleted; pod %s is still ending.", running[0].Name), after: stopAgain}, nil
	case j == nil:
		return stop{stopped: true}, nil
	}
	if a.asked.IsZero() {
		a.asked = w.d.now() // somebody else asked; patience begins now
	}
	held := strings.Join(j.Finalizers, ", ")
	if left := w.d.o.FinalizerPatience - w.d.now().Sub(a.asked); left > 0 {
		return stop{note: "The Job's pods are gone; the Job waits for " + held + ".", after: left}, nil
	}
	return stop{stopped: true, note: fmt.Sprintf("Its pods are gone; the Job object %q stays until the finalizer %s is removed.", j.Name, held)}, nil
}

// overrun stops an attempt that has run, or been blocked, for as long as it may. That it is to be stopped for this was stored before
// anything was deleted, so that a restart does not take the missing Job for a riddle.
func (w *worker) overrun(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	s, err := w.stopJob(ctx, a, row)
	switch {
	case err != nil:
		return 0, err
	case s.truth != nil:
		_, err := w.found(ctx, a, row, *s.truth)
		return 0, err
	case !s.stopped:
		return sooner(s.after, stopAgain), nil
	}
	now, name := w.d.now(), w.row().Name
	_, err = w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State.Terminal() || a.State == process.Cancelling {
			return nil, process.ErrNoChange
		}
		events := back(a, name, now)
		end(a, process.Failed, a.StopCode, a.Reason, now)
		return append(events, changedTo(a.Reason)), nil
	})
	return 0, err
}
