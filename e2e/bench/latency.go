package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pace submits n versions at a fixed rate without waiting for answers, and returns when each was sent, by version.
func (w *world) pace(ctx context.Context, n int, each time.Duration, body func(i int) map[string]any) (map[string]time.Time, error) {
	return pace(ctx, n, each, func(i int) (string, error) { return w.submit(ctx, body(i)) })
}

// pace begins one call each time and returns when each began, by the key that it gave.
func pace(ctx context.Context, n int, each time.Duration, do func(i int) (key string, err error)) (map[string]time.Time, error) {
	sent := map[string]time.Time{}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	tick := time.NewTicker(each)
	defer tick.Stop()
	for i := range n {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		wg.Go(func() {
			start := time.Now()
			id, err := do(i)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			sent[id] = start
		})
	}
	wg.Wait()
	return sent, errors.Join(errs...)
}

// gaps are the times from one sighting to the next, by key; what one side lacks is an error.
func gaps(from map[string]time.Time, to *sightings) ([]time.Duration, error) {
	out := make([]time.Duration, 0, len(from))
	for key, start := range from {
		end, ok := to.time(key)
		if !ok {
			return nil, fmt.Errorf("version %s was never seen", key)
		}
		// The two come by different ways; ours may be told first.
		out = append(out, max(end.Sub(start), 0))
	}
	return out, nil
}

func (s *sightings) all() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]time.Time, len(s.at))
	for k, v := range s.at {
		out[k] = v
	}
	return out
}

// single: single submissions at 50 a second, from the call to the Job's existence, against bare create requests at the
// same pace: a machine that 50 Jobs a second occupy makes both wait.
func single(ctx context.Context, b *bench) ([]row, error) {
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	seen, err := look(ctx, w.namespace, w.clients, jobs, jobVersion)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	n := b.n(1000)
	sent, err := w.pace(ctx, n, 20*time.Millisecond, func(i int) map[string]any {
		return submission(fmt.Sprintf("single-%04d", i), i%2, "true")
	})
	if err != nil {
		return nil, err
	}
	if err := seen.waitFor(ctx, sent, time.Minute); err != nil {
		return nil, err
	}
	took, err := gaps(sent, seen)
	if err != nil {
		return nil, err
	}
	if err := w.allEnded(ctx); err != nil {
		return nil, err
	}
	bare, err := w.bareSingle(ctx, n)
	if err != nil {
		return nil, err
	}
	return []row{{
		name: "(b) single submissions at 50/s, submit → Job exists", ours: p50p99(took), base: "bare create " + p50p99(bare),
		result: "p99 " + ms(quantile(took, 0.99)), aim: "p99 ≤ 250 ms", met: quantile(took, 0.99) <= 250*time.Millisecond,
	}}, nil
}

// bareSingle is the same with bare create requests of the same Jobs.
func (w *world) bareSingle(ctx context.Context, n int) ([]time.Duration, error) {
	for _, c := range clusterNames {
		if err := empty(ctx, w.clients[c], w.namespace); err != nil {
			return nil, err
		}
	}
	l := &loop{w: w, namespace: w.namespace + "-bare", n: n}
	if err := l.learn(ctx); err != nil {
		return nil, err
	}
	seen, err := look(ctx, l.namespace, w.clients, jobs, jobName)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	sent, err := pace(ctx, n, 20*time.Millisecond, func(i int) (string, error) { return l.create(ctx, i) })
	if err != nil {
		return nil, err
	}
	if err := seen.waitFor(ctx, sent, time.Minute); err != nil {
		return nil, err
	}
	return gaps(sent, seen)
}

// events: what the API server shows until it stands on our event stream.
func events(ctx context.Context, b *bench) ([]row, error) {
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	complete, err := look(ctx, w.namespace, w.clients, jobs, completeVersion)
	if err != nil {
		return nil, err
	}
	defer complete.stop()
	running, err := look(ctx, w.namespace, w.clients, pods, runningVersion)
	if err != nil {
		return nil, err
	}
	defer running.stop()
	stream, err := w.stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.close()

	n := b.n(400)
	_, err = w.pace(ctx, n, 50*time.Millisecond, func(i int) map[string]any {
		return submission(fmt.Sprintf("event-%04d", i), i%2, "sleep", "1")
	})
	if err != nil {
		return nil, err
	}
	for _, s := range []*sightings{complete, running, stream.succeeded, stream.running} {
		if _, err := s.wait(ctx, n, 2*time.Minute); err != nil {
			return nil, err
		}
	}
	ends, err := gaps(complete.all(), stream.succeeded)
	if err != nil {
		return nil, err
	}
	runs, err := gaps(running.all(), stream.running)
	if err != nil {
		return nil, err
	}
	limit := 100 * time.Millisecond
	return []row{
		{name: "(d) Job condition → event stream", ours: p50p99(ends), result: "p99 " + ms(quantile(ends, 0.99)), aim: "p99 ≤ 100 ms", met: quantile(ends, 0.99) <= limit},
		{name: "(d) pod runs → event stream", ours: p50p99(runs), result: "p99 " + ms(quantile(runs, 0.99)), aim: "p99 ≤ 100 ms", met: quantile(runs, 0.99) <= limit},
	}, nil
}

// stream reads the server's event stream.
type stream struct {
	running, succeeded *sightings
	close              func()
}

func (w *world) stream(ctx context.Context) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+"/api/v1/events", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+w.Key)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // close does it; the linter does not see through it
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		resp.Body.Close()
		return nil, fmt.Errorf("event stream: status %d", resp.StatusCode)
	}
	s := &stream{
		running:   &sightings{at: map[string]time.Time{}, grew: make(chan struct{}, 1)},
		succeeded: &sightings{at: map[string]time.Time{}, grew: make(chan struct{}, 1)},
	}
	var wg sync.WaitGroup
	s.close = func() { cancel(); resp.Body.Close(); wg.Wait() }
	wg.Go(func() {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			now := time.Now()
			var e struct {
				VersionID string `json:"version_id"`
				State     string
				Kind      string
			}
			if json.Unmarshal([]byte(data), &e) != nil {
				continue
			}
			switch e.State {
			case "running":
				s.running.see(e.VersionID, now)
			case "succeeded":
				// A job that ran between two looks has run all the same.
				s.running.see(e.VersionID, now)
				s.succeeded.see(e.VersionID, now)
			}
		}
	})
	return s, nil
}
