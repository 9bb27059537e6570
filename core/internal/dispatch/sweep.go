package dispatch

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// sweepSecrets removes, in each period, the Secrets of storage that no Job names any more.
func (w *worker) sweepSecrets(ctx context.Context) {
	ticker := w.d.o.Clock.NewTicker(w.d.o.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		all, err := w.d.o.Storage.SecretsOn(ctx, w.id)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("cannot read which Secrets of storage there are; trying again", "error", err)
		}
		for _, s := range all {
			if w.reach.blocked() {
				break
			}
			if err := w.sweep(ctx, s); err != nil && ctx.Err() == nil {
				w.log.Debug("cannot sweep a Secret; trying again", "namespace", s.Namespace, "secret", s.Name, "error", err)
			}
		}
	}
}

// sweep removes a Secret that nothing needs. The order is what keeps it while an attempt that names it is live: creates in
// this process are kept off first, only then is it asked whether one needs it, and what is deleted is the very object that
// was read after that, unchanged. A create notes its need before it makes sure of the Secret, and the first of each
// process changes the object.
func (w *worker) sweep(ctx context.Context, s storage.Secret) error {
	if err := w.fenced(s.Namespace); err != nil {
		return err
	}
	if err := w.d.o.Storage.EndSecretUses(ctx, s); err != nil {
		return err
	}
	if w.watched(s.Namespace) && slices.ContainsFunc(w.watch.Jobs(), names(s)) {
		return nil
	}
	if used, err := w.d.o.Storage.SecretUsed(ctx, s); err != nil || used {
		return err
	}
	w.leave(s)
	defer w.stay(s)
	there, err := w.getSecret(ctx, s)
	if err != nil {
		return err
	}
	if used, err := w.d.o.Storage.SecretUsed(ctx, s); err != nil || used {
		return err
	}
	if there != nil && job.OwnedSecret(there.Labels, w.d.o.Installation) {
		if named, err := w.named(ctx, s); err != nil || named {
			return err
		}
		if err := w.removeSecret(ctx, s, there.ObjectMeta); err != nil {
			return err
		}
	}
	return w.d.o.Storage.ForgetSecret(ctx, s)
}

// leave keeps creates off a Secret.
func (w *worker) leave(s storage.Secret) {
	w.secrets.mu.Lock()
	defer w.secrets.mu.Unlock()
	if w.secrets.leaving == nil {
		w.secrets.leaving = map[storage.Secret]bool{}
	}
	w.secrets.leaving[s] = true
}

// stay lets creates make sure of it again.
func (w *worker) stay(s storage.Secret) {
	w.secrets.mu.Lock()
	defer w.secrets.mu.Unlock()
	delete(w.secrets.leaving, s)
	delete(w.secrets.there, s)
}

func names(s storage.Secret) func(*batchv1.Job) bool {
	return func(j *batchv1.Job) bool {
		return j.Namespace == s.Namespace && j.Labels[job.LabelStorageSecret] == s.Name
	}
}

// named says whether a Job of the API server's store names the Secret.
func (w *worker) named(ctx context.Context, s storage.Secret) (named bool, err error) {
	err = w.call(ctx, "list-jobs", func(ctx context.Context, c *kube.Client) error {
		list, err := c.Clientset.BatchV1().Jobs(s.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: job.Selector(w.d.o.Installation) + "," + job.LabelStorageSecret + "=" + s.Name, Limit: 1,
		})
		named = err == nil && len(list.Items) > 0
		return err
	})
	return named, err
}

// removeSecret deletes the very object that was read, if it has not changed. Gone already is as good.
func (w *worker) removeSecret(ctx context.Context, s storage.Secret, m metav1.ObjectMeta) error {
	err := w.call(ctx, "delete-secret", func(ctx context.Context, c *kube.Client) error {
		return c.Clientset.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
		})
	})
	if kube.Classify(err) == kube.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	w.log.Info("swept a Secret of storage that no Job names", "namespace", s.Namespace, "secret", s.Name)
	return nil
}
