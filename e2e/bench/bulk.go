package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bulk: bulk-submitted versions until every Job exists, counted at the API servers, against a bare client-go loop that
// creates byte-identical Jobs. Half of the versions ask for a GPU, so both clusters and the selector have their part.
func bulk(ctx context.Context, b *bench) ([]row, error) {
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	n, pairs := b.n(1000), b.pairs
	base := &loop{w: w, namespace: w.namespace[:len(w.namespace)-2] + "xx", n: n}
	if err := base.prepare(ctx); err != nil {
		return nil, err
	}

	var ours, bare, ratios []float64
	for i := range pairs {
		// The order alternates, so that neither side always comes after the other.
		for _, mine := range []bool{i%2 == 0, i%2 != 0} {
			if mine {
				rate, err := w.bulkRate(ctx, n, i)
				if err != nil {
					return nil, err
				}
				ours = append(ours, rate)
				continue
			}
			rate, err := base.rate(ctx, n, base.best)
			if err != nil {
				return nil, err
			}
			bare = append(bare, rate)
		}
		ratios = append(ratios, ours[i]/bare[i])
		say("pair %d: ours %.0f/s, bare %.0f/s, ratio %.2f", i+1, ours[i], bare[i], ratios[i])
	}
	return []row{{
		name: fmt.Sprintf("(a) %d in bulk until every Job exists, %d pairs", n, pairs),
		ours: fmt.Sprintf("%.0f Jobs/s", median(ours)), base: fmt.Sprintf("%.0f Jobs/s, bare loop × %d", median(bare), base.best),
		result: fmt.Sprintf("ratio %.2f (%.2f to %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios)),
		aim:    "≥ 0.70", met: median(ratios) >= 0.7,
	}}, nil
}

func median(x []float64) float64 {
	y := slices.Clone(x)
	slices.Sort(y)
	if len(y)%2 == 1 {
		return y[len(y)/2]
	}
	return (y[len(y)/2-1] + y[len(y)/2]) / 2
}

func (w *world) bulkRate(ctx context.Context, n, round int) (float64, error) {
	items := make([]map[string]any, n)
	for i := range items {
		items[i] = submission(fmt.Sprintf("bulk-%02d-%04d", round, i), i%2, "true")
	}
	seen, err := look(ctx, w.namespace, w.clients, jobs, jobName)
	if err != nil {
		return 0, err
	}
	defer seen.stop()
	used := cpuTimes()
	start := time.Now()
	if err := w.submitBulk(ctx, items); err != nil {
		return 0, err
	}
	last, err := seen.wait(ctx, n, 2*time.Minute)
	if err != nil {
		return 0, err
	}
	w.b.detail("ours, processor time until every Job exists: %s", since(used))
	rate := float64(n) / last.Sub(start).Seconds()
	if err := w.allEnded(ctx); err != nil {
		return 0, err
	}
	w.b.detail("ours, processor time until every Job ended: %s", since(used))
	for _, c := range clusterNames {
		if err := empty(ctx, w.clients[c], w.namespace); err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// loop is the bare client-go loop.
type loop struct {
	w         *world
	namespace string
	n         int
	templates map[string]*batchv1.Job // by cluster
	best      int                     // concurrency
	serial    int
}

// learn takes one Job of each cluster from the server as the template.
func (l *loop) learn(ctx context.Context) error {
	l.templates = map[string]*batchv1.Job{}
	for i, cluster := range clusterNames {
		if err := makeNamespace(ctx, l.w.clients[cluster], l.namespace); err != nil {
			return err
		}
		id, err := l.w.submit(ctx, submission(fmt.Sprintf("bulk-00-%04d", 9990+i), i, "true"))
		if err != nil {
			return err
		}
		if err := l.w.allEnded(ctx); err != nil {
			return err
		}
		list, err := l.w.clients[cluster].BatchV1().Jobs(l.w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "nagelfluh.io/version=" + id})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("cluster %s has %d Jobs of version %s, want one", cluster, len(list.Items), id)
		}
		l.templates[cluster] = strip(&list.Items[0])
		if err := empty(ctx, l.w.clients[cluster], l.w.namespace); err != nil {
			return err
		}
	}
	return nil
}

// prepare learns and finds the best concurrency.
func (l *loop) prepare(ctx context.Context) error {
	if err := l.learn(ctx); err != nil {
		return err
	}
	top := 0.0
	for _, c := range []int{8, 16, 32, 64} {
		rate, err := l.rate(ctx, max(l.n/4, 40), c)
		if err != nil {
			return err
		}
		say("bare loop with %d at once: %.0f/s", c, rate)
		if rate > top {
			top, l.best = rate, c
		}
	}
	return nil
}

// strip takes off what the API server added, so that the loop sends what the server sent.
func strip(j *batchv1.Job) *batchv1.Job {
	out := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Labels: j.Labels, Annotations: j.Annotations},
		Spec:       *j.Spec.DeepCopy(),
	}
	out.Spec.Selector, out.Spec.ManualSelector = nil, nil
	for _, meta := range []*metav1.ObjectMeta{&out.ObjectMeta, &out.Spec.Template.ObjectMeta} {
		meta.CreationTimestamp = metav1.Time{}
		for _, added := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
			delete(meta.Labels, added)
		}
		delete(meta.Annotations, "batch.kubernetes.io/job-tracking")
	}
	// What the API server defaults was not sent.
	if out.Spec.Template.Spec.SchedulerName == corev1.DefaultSchedulerName {
		out.Spec.Template.Spec.SchedulerName = ""
	}
	return out
}

// create makes the i-th Job of a round, on the clusters in turn, and returns its UID.
func (l *loop) create(ctx context.Context, i int) (string, error) {
	cluster := clusterNames[i%len(clusterNames)]
	j := l.templates[cluster].DeepCopy()
	j.Name = fmt.Sprintf("%s%08d", j.Name[:len(j.Name)-8], l.serial+i)
	made, err := l.w.clients[cluster].BatchV1().Jobs(l.namespace).Create(ctx, j, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return string(made.UID), nil
}

// rate creates n Jobs with c calls at once and returns Jobs a second until the watch has seen the last.
func (l *loop) rate(ctx context.Context, n, c int) (float64, error) {
	seen, err := look(ctx, l.namespace, l.w.clients, jobs, jobName)
	if err != nil {
		return 0, err
	}
	defer seen.stop()
	todo := make(chan int, n)
	for i := range n {
		todo <- i
	}
	close(todo)
	var wg sync.WaitGroup
	errs := make(chan error, c)
	used := cpuTimes()
	start := time.Now()
	for range c {
		wg.Go(func() {
			for i := range todo {
				if _, err := l.create(ctx, i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	l.serial += n
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	last, err := seen.wait(ctx, n, 2*time.Minute)
	if err != nil {
		return 0, err
	}
	rate := float64(n) / last.Sub(start).Seconds()
	l.w.b.detail("bare, processor time until every Job exists: %s", since(used))
	// As after ours: all Jobs end before they are deleted.
	done, err := look(ctx, l.namespace, l.w.clients, jobs, func(o any) string {
		if completeVersion(o) == "" {
			return ""
		}
		return jobName(o)
	})
	if err != nil {
		return 0, err
	}
	defer done.stop()
	if _, err := done.wait(ctx, n, 2*time.Minute); err != nil {
		return 0, err
	}
	l.w.b.detail("bare, processor time until every Job ended: %s", since(used))
	for _, cluster := range clusterNames {
		if err := empty(ctx, l.w.clients[cluster], l.namespace); err != nil {
			return 0, err
		}
	}
	return rate, nil
}
