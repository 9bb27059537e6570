package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/failpoint"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// Every call of this file has a deadline, tells reach how it went and passes a failpoint before and after. Those that are
// made often are not repeated by client-go: its pauses would hold a worker, and our own back-off knows more.

func (w *worker) client(ctx context.Context) (*kube.Client, error) {
	c, err := w.d.o.Clients.Get(ctx, w.id)
	if err == nil {
		return c, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	// Whatever it is, nothing was sent.
	err = &unsent{err}
	w.reach.doubt(err)
	return nil, err
}

// call runs one call, unless the cluster is known not to answer.
func (w *worker) call(ctx context.Context, name string, do func(context.Context, *kube.Client) error) error {
	if w.reach.blocked() {
		return errParked
	}
	ctx, cancel := context.WithTimeout(ctx, w.d.o.CallTimeout)
	defer cancel()
	c, err := w.client(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("kube." + name + ".before")
	err = do(ctx, c)
	failpoint.Hit("kube." + name + ".after")
	w.reach.note(err)
	if err != nil && w.reach.blocked() {
		return errParked
	}
	return soon(err)
}

// probe asks for next to nothing; every answer that is no server error proves that the cluster is there.
func (w *worker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := w.d.o.Clients.Get(ctx, w.id)
	if err != nil {
		return err
	}
	err = c.Probe().BatchV1().RESTClient().Get().MaxRetries(0).Namespace(c.Namespace).Resource("jobs").
		VersionedParams(&metav1.ListOptions{LabelSelector: job.Selector(w.d.o.Installation), Limit: 1}, scheme.ParameterCodec).
		Do(ctx).Error()
	if unanswered(err) {
		return err
	}
	return nil
}

// always lets every request pass.
var always = flowcontrol.NewFakeAlwaysRateLimiter()

// post sends one create request. The API server gives it up at the timeout, and it is never repeated on the way: what
// was stored as its last possible moment stays true. It returns *unsent when it would have left too late.
func (w *worker) post(ctx context.Context, j *batchv1.Job, deadline time.Time) (*batchv1.Job, error) {
	if w.reach.blocked() {
		return nil, errParked
	}
	if err := w.fenced(j.Namespace); err != nil {
		return nil, &unsent{err}
	}
	ctx, cancel := context.WithTimeout(ctx, deadline.Sub(w.d.now()))
	defer cancel()
	select {
	case w.posts <- struct{}{}:
		defer func() { <-w.posts }()
	case <-ctx.Done():
		return nil, &unsent{ctx.Err()}
	}
	if w.reach.blocked() {
		return nil, errParked
	}
	c, err := w.client(ctx)
	if err != nil {
		return nil, err
	}
	// The wait for the cluster's rate limit comes before the look at the clock.
	api := c.Clientset.BatchV1().RESTClient()
	if limiter := api.GetRateLimiter(); limiter != nil {
		if err := limiter.Wait(ctx); err != nil {
			return nil, &unsent{err}
		}
	}
	timeout := min(w.d.o.CreateTimeout, deadline.Sub(w.d.now()))
	if timeout < w.d.o.CreateTimeout/2 {
		return nil, &unsent{errors.New("the time for the create request has passed")}
	}
	if !w.d.o.May() {
		return nil, &unsent{errors.New("this server may not lead any more")}
	}
	failpoint.Hit("kube.create.before")
	made := &batchv1.Job{}
	err = api.Post().UseProtobufAsDefault().Throttle(always).MaxRetries(0).Timeout(timeout).
		Namespace(j.Namespace).Resource("jobs").
		VersionedParams(&metav1.CreateOptions{}, scheme.ParameterCodec).
		Body(j).Do(ctx).Into(made)
	failpoint.Hit("kube.create.after")
	w.reach.note(err)
	return made, err
}

// get reads the Job by name as the API server's store has it; nil: there is none.
func (w *worker) get(ctx context.Context, namespace, name string) (found *batchv1.Job, err error) {
	err = w.call(ctx, "get", func(ctx context.Context, c *kube.Client) error {
		found = &batchv1.Job{}
		return c.Clientset.BatchV1().RESTClient().Get().UseProtobufAsDefault().MaxRetries(0).
			Namespace(namespace).Resource("jobs").Name(name).Do(ctx).Into(found)
	})
	if kube.Classify(err) == kube.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read job %s/%s: %w", namespace, name, err)
	}
	return found, nil
}

// podsOf reads the attempt's pods as the API server's store has them.
func (w *worker) podsOf(ctx context.Context, namespace, attemptID string) (pods []*corev1.Pod, err error) {
	err = w.call(ctx, "list-pods", func(ctx context.Context, c *kube.Client) error {
		list, err := c.Clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: job.Selector(w.d.o.Installation) + "," + job.LabelAttempt + "=" + job.LabelValue(attemptID),
		})
		if err != nil {
			return err
		}
		for i := range list.Items {
			pods = append(pods, &list.Items[i])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of attempt %s: %w", attemptID, err)
	}
	return pods, nil
}

// eventsOf reads what the cluster says of a Job.
func (w *worker) eventsOf(ctx context.Context, uid types.UID) (events []corev1.Event, err error) {
	err = w.call(ctx, "list-events", func(ctx context.Context, c *kube.Client) error {
		events, err = c.Events(ctx, uid)
		return err
	})
	return events, err
}

// remove deletes the Job of that UID and, through the cluster, its pods. Gone already is as good; so is another object
// under the name, which stays.
func (w *worker) remove(ctx context.Context, namespace, name string, uid types.UID) error {
	return w.removeBy(ctx, namespace, name, uid, metav1.DeletePropagationBackground)
}

func (w *worker) removeBy(ctx context.Context, namespace, name string, uid types.UID, propagation metav1.DeletionPropagation) error {
	if err := w.fenced(namespace); err != nil {
		return err
	}
	err := w.call(ctx, "delete", func(ctx context.Context, c *kube.Client) error {
		return c.Clientset.BatchV1().RESTClient().Delete().UseProtobufAsDefault().MaxRetries(0).
			Namespace(namespace).Resource("jobs").Name(name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &propagation}).
			Do(ctx).Error()
	})
	if class := kube.Classify(err); class == kube.NotFound || class == kube.Conflict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete job %s/%s: %w", namespace, name, err)
	}
	return nil
}

// sameCluster says whether the cluster that answers is still the one that the attempt was placed on. Absence on another
// one means nothing. An identity that cannot be read is no proof of change.
func (w *worker) sameCluster(ctx context.Context, identity, namespace string) (same bool, err error) {
	if identity == "" {
		return true, nil
	}
	present := map[string]string{} // UIDs by namespace
	for _, name := range []string{metav1.NamespaceSystem, namespace} {
		err := w.call(ctx, "get-identity", func(ctx context.Context, c *kube.Client) error {
			ns, err := c.Clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				present[name] = string(ns.UID)
			}
			return err
		})
		switch class := kube.Classify(err); {
		case err == nil || class == kube.Permissions:
		case class != kube.NotFound:
			return false, fmt.Errorf("read the identity of the cluster: %w", err)
		case name == metav1.NamespaceSystem:
			return false, nil // every cluster has it but one that has just been born, which had no Job
		}
	}
	same, told := cluster.Recognise(identity, present[metav1.NamespaceSystem], present[namespace])
	return same || !told, nil
}

// ensureNamespace creates the job namespace if we may. No error does not mean that it is there.
func (w *worker) ensureNamespace(ctx context.Context) error {
	return w.call(ctx, "ensure-namespace", kube.EnsureNamespace)
}
