package dispatch

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/health"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The monitor and the work go by one clock. Here the monitor looks at the start and then not for hours by itself, so it is
// the work that notices, in each of its ways, and the end is the same.
func TestB56TheWorkStartsTheClock(t *testing.T) {
	var down atomic.Bool
	ways := map[string]struct {
		work bool // something runs there beforehand
		act  func(r *rig, a *api)
		back func() // nil: it stays away
	}{
		"a failing create": {true, func(r *rig, _ *api) { r.submit(1) }, func() { down.Store(false) }},
		"a broken watch": {false, func(_ *rig, a *api) {
			_ = a.server.Listener.Close()
			a.server.CloseClientConnections()
		}, nil},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			var armed, watched atomic.Bool
			a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
				if armed.Load() && isPost(q) {
					down.Store(true)
				}
				switch {
				case down.Load():
					hangUp(w)
				case q.URL.Path == "/version":
					_, _ = w.Write([]byte(`{"gitVersion":"v1.37.2"}`))
				default:
					if q.URL.Query().Get("watch") != "" {
						watched.Store(true)
					}
					next(w, q)
				}
			})
			id := r.add("a", a)
			m := health.New(health.Options{
				Store: r.db, Clients: r.clients, Interval: 10 * time.Hour, CapacityEvery: 10 * time.Hour, Scan: 10 * time.Millisecond,
				SuspectAfter: 200 * time.Millisecond, LostAfter: 2 * time.Second,
			})
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- m.Run(ctx) }()
			t.Cleanup(func() { stop(); <-done })
			r.options.Outages = m
			seen := func() cluster.Observed {
				c, err := r.db.Cluster(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return c.Observed
			}
			r.when("the first look", func() bool { return seen().Health == cluster.Ready }, func() any { return seen() })
			r.start()
			if way.work {
				r.state(r.submit(1)[0], process.Queued)
			}
			r.when("its watch", watched.Load, nil)

			began := time.Now()
			armed.Store(true)
			way.act(r, a)
			r.when("suspect", func() bool { return seen().Health == cluster.Suspect }, func() any { return seen() })
			if since := seen().Unreachable; since == nil || since.Before(began) || since.After(seen().Since) {
				t.Errorf("unreachable since %v; it went at %s and is suspect since %s", since, began, seen().Since)
			}
			since := *seen().Unreachable
			r.when("lost", func() bool { return seen().Health == cluster.Lost }, func() any { return seen() })
			if o := seen(); !o.Unreachable.Equal(since) || o.Since.Sub(since) < 2*time.Second {
				t.Errorf("lost since %s by a clock that runs since %s, was %s", o.Since, o.Unreachable, since)
			}

			if armed.Store(false); way.back != nil {
				way.back()
				r.when("ready, told by the work", func() bool { return seen().Health == cluster.Ready }, func() any { return seen() })
			}
		})
	}
}
