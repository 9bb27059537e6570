package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Logs keeps what containers print.
type Logs interface {
	// Ensure has every container of the pods followed that has started. It returns at once; the pods are read-only.
	Ensure(a process.Attempt, pods []*corev1.Pod)
	// Finish stores the logs of an attempt that has ended. It may take long and may be called again.
	Finish(ctx context.Context, a process.Attempt, pods []*corev1.Pod) error
	// Abandon is Finish for an attempt whose cluster was removed: it stores what was read, and asks for no more.
	Abandon(ctx context.Context, a process.Attempt) error
}

type noLogs struct{}

func (noLogs) Ensure(process.Attempt, []*corev1.Pod) {}

func (noLogs) Finish(context.Context, process.Attempt, []*corev1.Pod) error { return nil }

func (noLogs) Abandon(context.Context, process.Attempt) error { return nil }

// retire clears up after an attempt that has ended: its logs are stored, then its Job is kept for a while and deleted.
func (w *worker) retire(ctx context.Context, a *attempt, row process.Attempt) (time.Duration, error) {
	synced := w.synced(row)
	if row.JobUID == "" {
		return w.retireJobless(ctx, row, synced)
	}
	if !a.finished && !row.LogsStored {
		// Pods that are gone already say in their last state whether their containers had ended.
		w.d.o.Logs.Ensure(row, append(w.watch.RemovedPods(row.ID), w.pods(row)...))
		w.logs.Add(row.ID)
		a.finished = true
	}
	if !synced {
		return 0, nil // the first full list wakes everyone
	}
	if !row.LogsStored {
		return 0, nil // that they are stored wakes the attempt
	}
	watched := w.watched(row.Namespace)
	j := w.seen(row)
	if watched && j == nil {
		w.forget(row.ID)
		return 0, nil
	}
	if w.d.o.Retention < 0 || j != nil && j.DeletionTimestamp != nil {
		return 0, nil
	}
	if left := w.d.o.Retention - w.d.now().Sub(endOf(row)); left > 0 {
		return left, nil
	}
	if err := w.remove(ctx, row.Namespace, row.JobName, uidOf(row)); err != nil {
		return 0, err
	}
	if !watched {
		w.forget(row.ID) // its end will not be seen
		return 0, nil
	}
	return w.d.o.Resync, nil
}

// storeLogs has the logs of an attempt that has ended stored, and notes that they are.
func (w *worker) storeLogs(ctx context.Context, id string) (time.Duration, error) {
	w.mu.Lock()
	a := w.attempts[id]
	var row process.Attempt
	if a != nil {
		row = a.row
	}
	w.mu.Unlock()
	if a == nil || row.LogsStored {
		return 0, nil
	}
	pods, err := w.allPods(ctx, row)
	if err != nil {
		if !errors.Is(err, errParked) {
			return 0, err
		}
		return w.d.o.Resync, nil // the return of the cluster wakes other queues than this one
	}
	if err := w.d.o.Logs.Finish(ctx, row, pods); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("cannot store the logs; trying again", "attempt", id, "error", err)
		}
		return 0, err
	}
	next, err := w.d.o.Store.UpdateAttempt(ctx, id, logsStored)
	if err != nil {
		return 0, fmt.Errorf("note that the logs of attempt %s are stored: %w", id, err)
	}
	w.enqueue(w.keep(a, next))
	return 0, nil
}

// allPods returns every pod of an attempt that has ended. The watch will do when it shows that all have ended and none is
// missing by the Job's own count.
func (w *worker) allPods(ctx context.Context, row process.Attempt) ([]*corev1.Pod, error) {
	j, pods := w.seen(row), w.pods(row)
	if j != nil && len(pods) > 0 && len(pods) >= int(j.Status.Failed+j.Status.Succeeded) && !slices.ContainsFunc(pods, alive) {
		return pods, nil
	}
	return w.podsOf(ctx, row.Namespace, row.ID)
}

// retireJobless looks for a Job that came to be although the attempt had been given up without one. A cancelled attempt
// must not run, so it is deleted; any other is for people to judge.
func (w *worker) retireJobless(ctx context.Context, row process.Attempt, synced bool) (time.Duration, error) {
	j := w.seen(row)
	switch {
	case j == nil && synced:
		w.forget(row.ID)
		return 0, nil
	case j == nil:
		return 0, nil
	case row.State != process.Cancelled || !job.Owned(j.Labels, w.d.o.Installation, row.ID):
		return 0, w.orphan(ctx, j, fmt.Sprintf("attempt %s ended as %s without it", row.ID, row.State))
	}
	w.log.Warn("a create request took effect after its attempt was cancelled; deleting the Job", "attempt", row.ID, "job", j.Name)
	if err := w.remove(ctx, j.Namespace, j.Name, j.UID); err != nil {
		return 0, err
	}
	return stopAgain, nil
}

func endOf(row process.Attempt) time.Time {
	if row.EndedAt != nil {
		return *row.EndedAt
	}
	return row.UpdatedAt
}

func orphanData(namespace, name string, uid types.UID) json.RawMessage {
	data, err := json.Marshal(map[string]string{"namespace": namespace, "job": name, "uid": string(uid)})
	if err != nil {
		return nil // strings always encode
	}
	return data
}
