package dispatch

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// meet looks at a Job that carries our label and belongs to no attempt in memory: one that ended before the start, one
// that landed after it had been given up, or one that nobody knows.
func (w *worker) meet(ctx context.Context, id string) error {
	w.mu.Lock()
	other := w.others[id]
	w.mu.Unlock()
	if other {
		return nil
	}
	var jobs []*batchv1.Job
	for _, j := range w.watch.Jobs() {
		if j.Labels[job.LabelAttempt] == id {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return nil // a pod's last breath
	}
	row, err := w.d.o.Store.Attempt(ctx, id)
	switch {
	case err == nil && row.ClusterID == w.id:
		w.admit(row)
		return nil
	case err != nil && !errors.Is(err, process.ErrNotFound):
		return fmt.Errorf("read attempt %s: %w", id, err)
	case err != nil:
		for _, j := range jobs {
			if err := w.orphan(ctx, j, "it carries the label of this installation, but no attempt that is known here"); err != nil {
				return err
			}
		}
	}
	// An orphan, or a Job of another entry that leads to the same cluster.
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.others) >= maxOthers {
		clear(w.others)
	}
	w.others[id] = true
	return nil
}

// orphan reports a Job that is not ours to touch, once.
func (w *worker) orphan(ctx context.Context, j *batchv1.Job, why string) error {
	w.mu.Lock()
	known := w.orphans[string(j.UID)]
	w.orphans[string(j.UID)] = true
	w.mu.Unlock()
	if known {
		return nil
	}
	message := fmt.Sprintf("Job %s/%s on cluster %q is an orphan: %s. It was left alone.", j.Namespace, j.Name, w.row().Name, why)
	w.log.Info("orphan", "namespace", j.Namespace, "job", j.Name, "uid", j.UID, "why", why)
	err := w.d.o.Store.Report(ctx, event.Event{Kind: event.Orphan, ClusterID: w.id, Message: message, Data: orphanData(j.Namespace, j.Name, j.UID)})
	if err != nil {
		w.mu.Lock()
		delete(w.orphans, string(j.UID))
		w.mu.Unlock()
		return fmt.Errorf("report an orphan: %w", err)
	}
	return nil
}
