package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Reason codes of creating.
const (
	reasonRefused  = "create-refused"
	reasonConflict = "name-conflict"
	reasonRetrying = "create-retrying"
	reasonNameHeld = "name-held"
	reasonUnsure   = "create-unsure"
)

const (
	// lookAgain is how often a create without an answer is looked for; the watch mostly finds it first.
	lookAgain = 3 * time.Second
	heldAgain = 2 * time.Second
	// sayAfter is how many failures in a row it takes to show them as the reason.
	sayAfter = 3
)

// create makes the Job, or finds the one that was made. The order is what keeps an attempt from having two: the intent
// is stored before a request leaves, at most one request is ever without an answer, and while one is, nothing but
// looking is done until it cannot take effect any more.
func (w *worker) create(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if j := w.seen(row); j != nil {
		return 0, w.adopt(ctx, a, row, j)
	}
	if a.sent == sentMaybe {
		found, after, err := w.lookFor(ctx, a, row)
		switch {
		case err != nil:
			return 0, err
		case found != nil:
			return w.occupied(ctx, a, row, found)
		case a.sent == sentMaybe:
			return after, w.sayUnsure(ctx, a, row)
		}
	}
	if left := a.notBefore.Sub(w.d.now()); left > 0 {
		return left, nil
	}
	return w.send(ctx, a, row)
}

// sayUnsure shows why nothing but looking is done after a create request without a clear answer: it takes a while.
func (w *worker) sayUnsure(ctx context.Context, a *attempt, row process.Attempt) error {
	if a.unclear == "" {
		return nil // a restart's first look
	}
	_, err := w.say(ctx, a, row, reasonUnsure, "No clear answer to the create request, which may still take effect; it is sent again when it cannot any more: "+a.unclear)
	return err
}

// lookFor asks the cluster whether the create that has no answer was made. When it was not and cannot be any more, it
// says so in a.sent; otherwise after says when to ask again.
func (w *worker) lookFor(ctx context.Context, a *attempt, row process.Attempt) (found *batchv1.Job, after time.Duration, err error) {
	wait := w.landing(row)
	found, err = w.get(ctx, row.Namespace, row.JobName)
	if err != nil || found != nil {
		return found, 0, err
	}
	if wait > 0 {
		return nil, min(wait, lookAgain), nil
	}
	a.sent = sentAnswered // absence, read after the last possible moment
	return nil, 0, nil
}

// landing says for how long a create request may still take effect, the margin included. What was held up on the way
// while the cluster could not be reached comes through when it can be again.
func (w *worker) landing(row process.Attempt) time.Duration {
	last := w.reach.returned()
	if row.CreateDeadline != nil && row.CreateDeadline.After(last) {
		last = *row.CreateDeadline
	}
	return last.Add(w.d.o.CreateMargin).Sub(w.d.now())
}

// send stores a fresh intent when the one that stands is about to pass, and sends the request.
func (w *worker) send(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	if w.reach.blocked() {
		return 0, errParked
	}
	if err := w.fenced(row.Namespace); err != nil {
		return 0, w.sayHeld(ctx, a, row, err)
	}
	if w.takenOver(row) {
		return 0, w.endMayHaveRun(ctx, a, row)
	}
	if err := w.readVersion(ctx, a, row); err != nil {
		return 0, err
	}
	access, ok, err := w.storageOf(ctx, a, row)
	if err != nil || !ok {
		return time.Millisecond, err
	}
	if row.CreateDeadline == nil || row.CreateDeadline.Sub(w.d.now()) < w.d.o.CreateTimeout*3/4 {
		next, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
			if a.State != process.Creating || a.JobUID != "" {
				return nil, process.ErrNoChange
			}
			intend(a, w.d.now(), w.d.o.CreateWindow)
			return nil, nil
		})
		if err != nil {
			return 0, err
		}
		if row = next; row.State != process.Creating {
			w.enqueue(row)
			return 0, nil
		}
	}
	c := w.row()
	j, err := job.Build(job.Input{
		Installation: w.d.o.Installation, Version: *a.version, Attempt: row,
		QueueName: c.QueueName, MaxRuntime: c.MaxRuntime, PullSecrets: w.d.o.PullSecrets,
		Env: access.env, StorageSecret: access.secret, SecretEnv: access.secretEnv,
	})
	if err != nil {
		return 0, w.fail(ctx, a, row, reasonRefused, err.Error())
	}
	a.sent = sentMaybe
	made, err := w.post(ctx, j, *row.CreateDeadline)
	if err == nil {
		return 0, w.adopt(ctx, a, row, made)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return w.unmade(ctx, a, row, err)
}

// unmade acts on a create request that did not succeed.
func (w *worker) unmade(ctx context.Context, a *attempt, row process.Attempt, err error) (time.Duration, error) {
	v := judge(err)
	if v != maybeCreated && v != nameTaken {
		a.sent = sentAnswered
	}
	switch v {
	case nameTaken:
		// It may be ours, made by an earlier request; until that is known nothing is.
		found, err := w.get(ctx, row.Namespace, row.JobName)
		if err != nil {
			return 0, err
		}
		if found == nil || !job.Owned(found.Labels, w.d.o.Installation, row.ID) {
			a.sent = sentAnswered
		}
		if found == nil {
			return 0, errors.New("the object that held the Job's name has gone")
		}
		return w.occupied(ctx, a, row, found)
	case noNamespace:
		if a.namespaced {
			return 0, w.fail(ctx, a, row, reasonRefused, refusal(row.Namespace, w.row().Name, err)+
				". Create the namespace, or name another one in the cluster's settings.")
		}
		if err := w.ensureNamespace(ctx); err != nil {
			return 0, err
		}
		a.namespaced = true
		return time.Millisecond, nil
	case refused:
		return 0, w.fail(ctx, a, row, reasonRefused, refusal(row.Namespace, w.row().Name, err))
	}
	a.failures++
	if left := (*unsent)(nil); errors.As(err, &left) || errors.Is(err, errParked) {
		return 0, err
	}
	if v == maybeCreated {
		a.unclear = refusal(row.Namespace, w.row().Name, err)
	}
	if a.failures >= sayAfter && !w.reach.blocked() {
		code := reasonRetrying
		if v == maybeCreated {
			code = reasonUnsure
		}
		if _, err := w.say(ctx, a, row, code, "Trying again: "+refusal(row.Namespace, w.row().Name, err)); err != nil {
			return 0, err
		}
	}
	if after := patience(err); after > 0 {
		a.notBefore = w.d.now().Add(after)
	}
	return 0, soon(err)
}

// occupied acts on an object that has the name of the attempt's Job: ours is taken over, a stranger's is left alone.
func (w *worker) occupied(ctx context.Context, a *attempt, row process.Attempt, found *batchv1.Job) (time.Duration, error) {
	name := w.row().Name
	switch {
	case job.Owned(found.Labels, w.d.o.Installation, row.ID):
		return 0, w.adopt(ctx, a, row, found)
	case found.DeletionTimestamp != nil:
		_, err := w.say(ctx, a, row, reasonNameHeld,
			fmt.Sprintf("Another object holds the name %q on cluster %q and is being deleted.", row.JobName, name))
		return heldAgain, err
	case a.sent == sentMaybe && w.landing(row) > 0:
		return lookAgain, nil // it could go and let ours in
	}
	return 0, w.fail(ctx, a, row, reasonConflict, fmt.Sprintf(
		"A Job named %q that is not ours exists in namespace %q on cluster %q; it was left alone. Remove it and submit again.",
		row.JobName, row.Namespace, name))
}

// adopt notes the Job as the attempt's one.
func (w *worker) adopt(ctx context.Context, a *attempt, row process.Attempt, j *batchv1.Job) error {
	now := w.d.now()
	uid := string(j.UID)
	next, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.JobUID != "" || a.State.Terminal() {
			return nil, process.ErrNoChange
		}
		a.JobUID, a.JobAt = uid, &now
		a.Tries = 0
		if a.State != process.Creating {
			return []event.Event{reasonNow(fmt.Sprintf("Job %s exists on the cluster; it is to be removed.", a.JobName))}, nil
		}
		a.State, a.ReasonCode, a.Reason = process.Queued, evidence.NoPod, "The Job exists; its pod does not yet."
		e := changedTo(a.Reason)
		e.Data = details("job", map[string]string{"namespace": a.Namespace, "name": a.JobName, "uid": uid})
		return []event.Event{e}, nil
	})
	if err != nil {
		return err
	}
	a.sent, a.reasonAt = sentAnswered, now
	w.learnLimits(a)
	a.version, a.failures = nil, 0
	if w.seen(next) != nil {
		w.enqueue(next) // the watch was quicker
	}
	return nil
}

// fail ends an attempt that has no Job and never will. One that is being cancelled is left to that.
func (w *worker) fail(ctx context.Context, a *attempt, row process.Attempt, code, reason string) error {
	now := w.d.now()
	next, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Creating {
			return nil, process.ErrNoChange
		}
		end(a, process.Failed, code, reason, now)
		return []event.Event{changedTo(reason)}, nil
	})
	if err == nil && next.State == process.Cancelling {
		w.enqueue(next)
	}
	return err
}

// endMayHaveRun ends an attempt whose Job another copy of the database may have made, seen end and removed.
func (w *worker) endMayHaveRun(ctx context.Context, a *attempt, row process.Attempt) error {
	reason := fmt.Sprintf("It may have run: a copy of this database held namespace %q on cluster %q, and the cluster knows of no Job now. Submit it again if it has not.",
		row.Namespace, w.row().Name)
	now := w.d.now()
	_, err := w.update(ctx, a, row, func(a *process.Attempt) ([]event.Event, error) {
		if a.State != process.Creating || a.JobUID != "" {
			return nil, process.ErrNoChange
		}
		end(a, process.Unknown, reasonMayHave, reason, now)
		return []event.Event{changedTo(reason)}, nil
	})
	return err
}

func (w *worker) readVersion(ctx context.Context, a *attempt, row process.Attempt) error {
	if a.version != nil {
		return nil
	}
	v, err := w.d.o.Store.Version(ctx, row.VersionID)
	if err != nil {
		return fmt.Errorf("read version %s: %w", row.VersionID, err)
	}
	a.version = &v
	return nil
}
