package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/check"
	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// client is a careful user: it sends each submission with a key until it has an answer, and cancels as planned.
type client struct {
	w     *world
	began time.Time

	turn    atomic.Uint32
	mu      sync.Mutex
	wanted  []check.Wanted
	retried int     // requests that got no answer, or one that asks to try again
	errs    []error // answers that no request of its kind should get
}

func newClient(w *world, began time.Time) *client { return &client{w: w, began: began} }

// requestLimit bounds one request. The server is on the same machine, but the machine may be busy.
const requestLimit = 10 * time.Second

// run submits everything at its time and returns when all is answered and all cancels are asked for.
func (c *client) run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range c.w.o.Submissions() {
		pause(ctx, time.Until(c.began.Add(p.At)))
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			if err := c.one(ctx, p); err != nil {
				c.mu.Lock()
				c.errs = append(c.errs, fmt.Errorf("%s: %w", p.Name, err))
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

func (c *client) one(ctx context.Context, p plan.Process) error {
	cluster := ""
	if p.Cluster >= 0 {
		cluster = row(p.Cluster)
	}
	body := p.Submission(c.w.witness(), cluster)
	want := check.Wanted{Process: p, Key: "key-" + p.Name}
	for range 1 + btoi(p.Again) {
		r, err := c.send(ctx, http.MethodPost, "/projects/default/processes", body, "Idempotency-Key", want.Key)
		if err != nil {
			return err
		}
		var v struct{ ID string }
		if err := json.Unmarshal(r.Body, &v); err != nil {
			return err
		}
		if want.Version != "" && want.Version != v.ID {
			want.Doubles = append(want.Doubles, v.ID)
		}
		want.Version = v.ID
	}
	want.Accepted = time.Now()
	if p.CancelAfter > 0 {
		pause(ctx, p.CancelAfter)
		if _, err := c.send(ctx, http.MethodPost, "/versions/"+want.Version+"/cancel", nil); err != nil {
			return err
		}
		want.Cancelled = true
	}
	c.mu.Lock()
	c.wanted = append(c.wanted, want)
	c.mu.Unlock()
	return nil
}

// send repeats a request until it is answered.
func (c *client) send(ctx context.Context, method, path string, body any, header ...string) (stack.Response, error) {
	for n := c.turn.Add(1); ; n++ { // whoever got no answer asks the next server
		short, cancel := context.WithTimeout(ctx, requestLimit)
		r, err := c.w.core(n).get().Do(short, method, path, body, header...)
		cancel()
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err == nil && r.Status/100 == 2:
			return r, nil
		case err == nil && r.Status != http.StatusServiceUnavailable && r.Status != http.StatusTooManyRequests:
			return r, fmt.Errorf("%s %s: status %d: %.500s", method, path, r.Status, r.Body)
		}
		c.mu.Lock()
		c.retried++
		c.mu.Unlock()
		pause(ctx, 100*time.Millisecond)
	}
}

type clientCounts struct{ accepted, cancels, retried int }

func (c *client) counts() clientCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := clientCounts{accepted: len(c.wanted), retried: c.retried}
	for _, w := range c.wanted {
		n.cancels += btoi(w.Cancelled)
	}
	return n
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
