package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"path/filepath"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

var clusterNames = []string{"main", "gpu"}

// world is one server with a namespace of its own at both clusters.
type world struct {
	*stack.Server
	b         *bench
	namespace string
	clients   map[string]*kubernetes.Clientset
}

// serve starts a server on fresh data; cluster gpu is added with the kubeconfig given, main is the default cluster.
func (b *bench) serve(ctx context.Context, gpuKubeconfig string, edit func(*stack.ServerOptions)) (*world, error) {
	b.servers++
	w := &world{b: b, namespace: fmt.Sprintf("bench-%02d", b.servers), clients: map[string]*kubernetes.Clientset{}}
	o := stack.ServerOptions{
		Dir: filepath.Join(b.dir, w.namespace), Kubeconfig: b.clusters.Kubeconfig("main"),
		Env: []string{"K8S_NAMESPACE=" + w.namespace},
	}
	if b.verbose {
		o.Line = func(s string) { fmt.Fprintln(os.Stderr, s) }
	}
	if b.debug != "" {
		o.Args = append(o.Args, "--debug-listen", b.debug)
	}
	if edit != nil {
		edit(&o)
	}
	for _, name := range clusterNames {
		c, err := b.clusters.Client(name)
		if err != nil {
			return nil, err
		}
		w.clients[name] = c
		if err := makeNamespace(ctx, c, w.namespace); err != nil {
			return nil, err
		}
	}
	var err error
	if w.Server, err = stack.StartServer(ctx, o); err != nil {
		return nil, err
	}
	if _, err := w.CLI(ctx, "clusters", "add", "gpu", "--type", "kubeconfig", "--kubeconfig", gpuKubeconfig); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	if err := w.ready(ctx); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

func makeNamespace(ctx context.Context, c kubernetes.Interface, name string) error {
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func (w *world) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return stack.Until(ctx, "both clusters are ready", func() (bool, error) {
		var list struct {
			Items []struct {
				Name     string
				Observed struct {
					Health   string
					Capacity *struct{}
				}
			}
		}
		if err := w.Get(ctx, "/clusters", &list); err != nil {
			return false, err
		}
		for _, c := range list.Items {
			if c.Observed.Health != "ready" || c.Observed.Capacity == nil {
				return false, nil
			}
		}
		return len(list.Items) == len(clusterNames), nil
	})
}

// close stops the server and empties its namespace.
func (w *world) close(ctx context.Context) error {
	errs := []error{w.Stop(20 * time.Second)}
	for _, name := range clusterNames {
		errs = append(errs, empty(ctx, w.clients[name], w.namespace))
	}
	return errors.Join(errs...)
}

// empty deletes the Jobs of a namespace and waits until they and their pods are gone.
func empty(ctx context.Context, c kubernetes.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	background := metav1.DeletePropagationBackground
	zero := int64(0)
	err := c.BatchV1().Jobs(namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := c.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
		return err
	}
	return stack.Until(ctx, "namespace "+namespace+" is empty", func() (bool, error) {
		jobs, err := c.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err
		}
		pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(jobs.Items)+len(pods.Items) == 0, err
	})
}

// submission is a body; gpus 0 goes to the default cluster.
func submission(name string, gpus int, command ...string) map[string]any {
	spec := map[string]any{"image": "busybox", "command": command}
	if gpus > 0 {
		spec["limits"] = map[string]string{"nvidia.com/gpu": fmt.Sprint(gpus)}
	}
	return map[string]any{"name": name, "spec": spec}
}

func (w *world) submit(ctx context.Context, body map[string]any) (id string, err error) {
	r, err := w.Do(ctx, http.MethodPost, "/projects/default/processes", body)
	if err != nil {
		return "", err
	}
	if r.Status != http.StatusCreated {
		return "", fmt.Errorf("submit: status %d: %s", r.Status, r.Body)
	}
	var v struct{ ID string }
	return v.ID, json.Unmarshal(r.Body, &v)
}

func (w *world) submitBulk(ctx context.Context, items []map[string]any) error {
	r, err := w.Do(ctx, http.MethodPost, "/projects/default/processes/bulk", map[string]any{"items": items})
	if err == nil && r.Status != http.StatusCreated {
		err = fmt.Errorf("submit in bulk: status %d: %.500s", r.Status, r.Body)
	}
	return err
}

// live says whether any version has not ended.
func (w *world) live(ctx context.Context) (bool, error) {
	for _, state := range []string{"placing", "creating", "queued", "running", "cancelling"} {
		var page struct{ Items []struct{} }
		if err := w.Get(ctx, "/versions?limit=1&state="+state, &page); err != nil || len(page.Items) > 0 {
			return true, err
		}
	}
	return false, nil
}

func (w *world) allEnded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return stack.Until(ctx, "every version has ended", func() (bool, error) {
		live, err := w.live(ctx)
		return !live && err == nil, err
	})
}

// sightings are the moments at which the bench's own watches saw things.
type sightings struct {
	mu   sync.Mutex
	at   map[string]time.Time
	last time.Time
	grew chan struct{}
	stop func()
}

func (s *sightings) see(key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, seen := s.at[key]; key == "" || seen {
		return
	}
	s.at[key] = now
	s.last = now
	select {
	case s.grew <- struct{}{}:
	default:
	}
}

func (s *sightings) time(key string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.at[key]
	return t, ok
}

// wait returns when n keys were seen, with the moment of the last of them.
func (s *sightings) wait(ctx context.Context, n int, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s.mu.Lock()
		got, last := len(s.at), s.last
		s.mu.Unlock()
		if got >= n {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("saw %d of %d: %w", got, n, ctx.Err())
		case <-s.grew:
		}
	}
}

// waitFor returns when all the keys were seen. A new watch begins with what was there before, so a count would not do.
func (s *sightings) waitFor(ctx context.Context, keys map[string]time.Time, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for key := range keys {
		for {
			if _, seen := s.time(key); seen {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("version %s was never seen: %w", key, ctx.Err())
			case <-s.grew:
			}
		}
	}
	return nil
}

// look starts a watch on each client; key names what an object shows, empty for nothing.
func look(ctx context.Context, namespace string, clients map[string]*kubernetes.Clientset, open opener, key func(any) string) (*sightings, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sightings{at: map[string]time.Time{}, grew: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	s.stop = func() { cancel(); wg.Wait() }
	for _, c := range clients {
		in, err := open(ctx, c, namespace)
		if err != nil {
			s.stop()
			return nil, err
		}
		wg.Go(func() {
			defer in.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-in.ResultChan():
					if !ok { // ended by the API server; a new one begins with all that there is
						if in, err = open(ctx, c, namespace); err != nil {
							return
						}
						continue
					}
					s.see(key(e.Object), time.Now())
				}
			}
		})
	}
	return s, nil
}

// opener opens a watch.
type opener func(ctx context.Context, c kubernetes.Interface, namespace string) (watch.Interface, error)

func jobs(ctx context.Context, c kubernetes.Interface, namespace string) (watch.Interface, error) {
	return c.BatchV1().Jobs(namespace).Watch(ctx, metav1.ListOptions{})
}

func pods(ctx context.Context, c kubernetes.Interface, namespace string) (watch.Interface, error) {
	return c.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
}

// jobName is the key of any Job; jobVersion the version that it belongs to.
func jobName(o any) string {
	if j, ok := o.(*batchv1.Job); ok {
		return string(j.UID)
	}
	return ""
}

func jobVersion(o any) string {
	if j, ok := o.(*batchv1.Job); ok {
		return j.Labels["nagelfluh.io/version"]
	}
	return ""
}

// completeVersion is the version of a Job with a final condition.
func completeVersion(o any) string {
	if j, ok := o.(*batchv1.Job); ok {
		for _, c := range j.Status.Conditions {
			if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
				return j.Labels["nagelfluh.io/version"]
			}
		}
	}
	return ""
}

// runningVersion is the version of a running pod.
func runningVersion(o any) string {
	if p, ok := o.(*corev1.Pod); ok && p.Status.Phase == corev1.PodRunning {
		return p.Labels["nagelfluh.io/version"]
	}
	return ""
}

// post sends a body and decodes the answer; any status but 2xx is an error.
func (w *world) post(ctx context.Context, path string, body, out any) error {
	r, err := w.Do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	if r.Status/100 != 2 {
		return fmt.Errorf("POST %s: status %d: %.500s", path, r.Status, r.Body)
	}
	return json.Unmarshal(r.Body, out)
}
