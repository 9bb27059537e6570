package dispatch

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// Storage knows the storage of projects, and keeps which Secrets of it may exist at clusters and which attempts' Jobs may
// name them.
type Storage interface {
	// StorageOf returns the backend of a project; false: it has none.
	StorageOf(ctx context.Context, projectID string) (storage.Backend, bool, error)
	// UseSecret notes that the Job of an attempt may name a Secret, before either exists.
	UseSecret(ctx context.Context, s storage.Secret, attemptID string) error
	// SecretUsed says whether an attempt that has not ended may name it.
	SecretUsed(ctx context.Context, s storage.Secret) (bool, error)
	// SecretsOn returns the Secrets that may exist at a cluster; SecretClusters the clusters that have any.
	SecretsOn(ctx context.Context, clusterID string) ([]storage.Secret, error)
	SecretClusters(ctx context.Context) (map[string]bool, error)
	// EndSecretUses drops what is noted of attempts that have ended.
	EndSecretUses(ctx context.Context, s storage.Secret) error
	// ForgetSecret drops a Secret that is gone, unless an attempt has taken it up again.
	ForgetSecret(ctx context.Context, s storage.Secret) error
}

type noStorage struct{}

func (noStorage) StorageOf(context.Context, string) (b storage.Backend, has bool, err error) {
	return b, false, nil
}
func (noStorage) UseSecret(context.Context, storage.Secret, string) error     { return nil }
func (noStorage) SecretUsed(context.Context, storage.Secret) (bool, error)    { return true, nil }
func (noStorage) SecretsOn(context.Context, string) ([]storage.Secret, error) { return nil, nil }
func (noStorage) SecretClusters(context.Context) (map[string]bool, error)     { return nil, nil }
func (noStorage) EndSecretUses(context.Context, storage.Secret) error         { return nil }
func (noStorage) ForgetSecret(context.Context, storage.Secret) error          { return nil }

// Reason codes of storage.
const (
	reasonStorageUnreadable = "storage-unreadable"
	reasonSecretRetrying    = "storage-secret-retrying"
	reasonSecretRefused     = "storage-secret-refused"
	reasonSecretConflict    = "storage-secret-conflict"
)

const (
	// secretFresh is how long a Secret is taken to be there still: people delete things.
	secretFresh = time.Minute
	// sweptAgain is when a create looks again that came upon the removal of its Secret.
	sweptAgain = 200 * time.Millisecond
)

// secrets is what a worker knows of the Secrets at its cluster. The zero value knows nothing.
type secrets struct {
	mu sync.Mutex
	// there are those that were seen to hold what they should, and when.
	there map[storage.Secret]time.Time
	// leaving are those that may be deleted at this moment.
	leaving map[storage.Secret]bool
}

// jobStorage is what the Job of an attempt gets of its project's storage.
type jobStorage struct {
	env       []process.EnvVar
	secret    string // that secretEnv takes its values from; empty: none
	secretEnv []job.SecretVar
}

// storageOf makes sure that the Secret is there which the Job of the attempt is to name. That the attempt needs it was
// stored before, so from then on it is not swept. Not ok without an error: the attempt has ended, or it is looked at again
// soon.
func (w *worker) storageOf(ctx context.Context, a *attempt, row process.Attempt) (out jobStorage, ok bool, err error) {
	v := a.version
	b, has, err := w.d.o.Storage.StorageOf(ctx, v.ProjectID)
	if err != nil {
		return out, false, fmt.Errorf("read the storage of project %s: %w", v.ProjectID, err)
	}
	if !has {
		return out, true, nil
	}
	if (b.Credentials == storage.Credentials{}) {
		reason := fmt.Sprintf("The credentials of storage backend %q cannot be decrypted; an admin has to give it new ones.", b.Name)
		if _, err := w.say(ctx, a, row, reasonStorageUnreadable, reason); err != nil {
			return out, false, err
		}
		return out, false, &later{w.d.o.Resync, fmt.Errorf("storage backend %s: its credentials cannot be decrypted", b.ID)}
	}
	sets := make([]string, len(v.Spec.Env))
	for i, e := range v.Spec.Env {
		sets[i] = e.Name
	}
	access := storage.AccessOf(w.d.o.Installation, v.ProjectID, b, sets)
	for _, e := range access.Env {
		if e.Key == "" {
			out.env = append(out.env, process.EnvVar{Name: e.Name, Value: e.Value})
		} else {
			out.secretEnv = append(out.secretEnv, job.SecretVar{Name: e.Name, Key: e.Key})
		}
	}
	if len(out.secretEnv) == 0 {
		return out, true, nil // the user sets them all
	}
	out.secret = access.Secret
	s := storage.Secret{ClusterID: w.id, Namespace: row.Namespace, Name: access.Secret}
	if err := w.d.o.Storage.UseSecret(ctx, s, row.ID); err != nil {
		return out, false, fmt.Errorf("note that attempt %s needs Secret %s: %w", row.ID, s.Name, err)
	}
	ok, err = w.provide(ctx, a, row, s, access)
	return out, ok, err
}

// provide has the Secret at the cluster, unless it was seen there a moment ago.
func (w *worker) provide(ctx context.Context, a *attempt, row process.Attempt, s storage.Secret, access storage.Access) (ok bool, err error) {
	w.secrets.mu.Lock()
	leaving, seen := w.secrets.leaving[s], w.secrets.there[s]
	w.secrets.mu.Unlock()
	switch {
	case leaving:
		return false, &later{sweptAgain, fmt.Errorf("Secret %s is being swept", s.Name)}
	case w.d.now().Sub(seen) < secretFresh:
		return true, nil
	}
	foreign, err := w.putSecret(ctx, s, access)
	if err == nil && !foreign {
		w.secrets.mu.Lock()
		defer w.secrets.mu.Unlock()
		if w.secrets.there == nil {
			w.secrets.there = map[storage.Secret]time.Time{}
		}
		w.secrets.there[s] = w.d.now()
		return true, nil
	}
	name := w.row().Name
	if foreign {
		return false, w.fail(ctx, a, row, reasonSecretConflict, fmt.Sprintf(
			"A Secret named %q that is not ours exists in namespace %q on cluster %q; it was left alone. Remove it and submit again.", s.Name, s.Namespace, name))
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	sentence := fmt.Sprintf("bring the credentials of the project's storage to namespace %q on cluster %q: %v", s.Namespace, name, err)
	switch kube.Classify(err) {
	case kube.NotFound:
		if a.namespaced {
			return false, w.fail(ctx, a, row, reasonSecretRefused, sentence+". Create the namespace, or name another one in the cluster's settings.")
		}
		if err := w.ensureNamespace(ctx); err != nil {
			return false, err
		}
		a.namespaced = true
		return false, nil
	case kube.Permissions, kube.Invalid:
		return false, w.fail(ctx, a, row, reasonSecretRefused, sentence)
	}
	if a.failures++; a.failures >= sayAfter && !w.reach.blocked() {
		if _, err := w.say(ctx, a, row, reasonSecretRetrying, "Trying again: "+sentence); err != nil {
			return false, err
		}
	}
	return false, err
}

// putSecret makes the Secret, or takes over the one that is there. Taking it over changes it, so that a removal which a
// server decided before cannot be carried out any more. A foreign one is left alone.
func (w *worker) putSecret(ctx context.Context, s storage.Secret, access storage.Access) (foreign bool, err error) {
	data := make(map[string][]byte, len(access.Data))
	for k, v := range access.Data {
		data[k] = []byte(v)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Labels: job.SecretLabels(w.d.o.Installation, access.ProjectID, access.BackendID),
			Annotations: map[string]string{annotationTaken: w.d.now().Format(time.RFC3339Nano)},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
	err = w.call(ctx, "create-secret", func(ctx context.Context, c *kube.Client) error {
		_, err := c.Clientset.CoreV1().Secrets(s.Namespace).Create(ctx, want, metav1.CreateOptions{})
		return err
	})
	if kube.Classify(err) != kube.Exists {
		return false, err
	}
	there, err := w.getSecret(ctx, s)
	if err != nil || there == nil {
		return false, err // gone in between: not seen there, so the next look makes it
	}
	if !job.OwnedSecret(there.Labels, w.d.o.Installation) {
		return true, nil
	}
	next := there.DeepCopy()
	next.Data = data
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, want.Annotations)
	maps.Copy(next.Labels, want.Labels)
	return false, w.call(ctx, "update-secret", func(ctx context.Context, c *kube.Client) error {
		_, err := c.Clientset.CoreV1().Secrets(s.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
}

// annotationTaken says when a server last made sure of a Secret.
const annotationTaken = "nagelfluh.io/taken-at"

// getSecret reads a Secret; nil: there is none.
func (w *worker) getSecret(ctx context.Context, s storage.Secret) (found *corev1.Secret, err error) {
	err = w.call(ctx, "get-secret", func(ctx context.Context, c *kube.Client) error {
		found, err = c.Clientset.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		return err
	})
	if kube.Classify(err) == kube.NotFound {
		return nil, nil
	}
	return found, err
}
