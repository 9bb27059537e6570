package dispatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// audit compares what the watch shows with a list from the API server's cache. Streams can lose an event on their way
// without breaking; an attempt for which the two differ is looked at by direct reads.
func (w *worker) audit(ctx context.Context) error {
	listed := map[string]string{} // resource version by UID
	err := w.call(ctx, "list-jobs", func(ctx context.Context, c *kube.Client) error {
		list, err := c.Clientset.BatchV1().Jobs(c.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: job.Selector(w.d.o.Installation), ResourceVersion: "0",
		})
		if err != nil {
			return err
		}
		for i := range list.Items {
			listed[string(list.Items[i].UID)] = list.Items[i].ResourceVersion
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	behind := map[string]string{}
	for id, a := range w.attempts {
		if a.row.JobUID == "" || a.row.State.Terminal() || !w.watches(a.row.Namespace) {
			continue
		}
		shown := w.watch.Job(a.row.Namespace, a.row.JobName)
		if shown == nil || string(shown.UID) != a.row.JobUID {
			continue // observe asks for itself
		}
		version, there := listed[a.row.JobUID]
		switch {
		case !there:
			a.suspect = true
		case version != shown.ResourceVersion:
			// One of the two is a moment behind. When it is still this version at the next audit, it is the watch.
			a.suspect = w.behind[id] == shown.ResourceVersion
			behind[id] = shown.ResourceVersion
		}
	}
	w.behind = behind
	return nil
}
