package dispatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

func TestStopIsSafeInAnyOrder(t *testing.T) {
	r := newRig(t)
	d := New(r.options)
	d.Stop()
	d.Stop()
	if err := d.Run(context.Background()); err != nil {
		t.Errorf("Run after Stop: %v", err)
	}
	d = New(r.options)
	done := make(chan error)
	go func() { done <- d.Run(context.Background()) }()
	r.when("the start", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.started }, nil)
	d.Stop()
	d.Stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := d.Run(context.Background()); !errors.Is(err, ErrStarted) {
		t.Errorf("second Run: %v", err)
	}
	if err := New(Options{}).Run(context.Background()); err == nil {
		t.Error("Run with empty options returned no error")
	}
}

func TestB53_FrozenClusterSlowsNoOther(t *testing.T) {
	r, good, frozen := newRig(t), newAPI(t), newAPI(t)
	thaw := make(chan struct{})
	var posts, most atomic.Int32
	frozen.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		_, _ = io.Copy(io.Discard, q.Body) // only then the server notices that the client has left
		select {
		case <-thaw:
		case <-q.Context().Done():
		}
	})
	defer close(thaw)
	r.options.Creates = 4
	bad := r.add("frozen", nil)
	client := frozen.client(bad)
	client.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(q *http.Request) (*http.Response, error) {
			if isPost(q) {
				most.Store(max(most.Load(), posts.Add(1)))
				defer posts.Add(-1)
			}
			return next.RoundTrip(q)
		})
	})
	set, err := kubernetes.NewForConfig(client.Config)
	if err != nil {
		t.Fatal(err)
	}
	client.Clientset = set
	r.clients.set(bad, client)
	fine := r.add("good", good)
	var n atomic.Int32
	r.placer.set(func(string, placement.Request) placement.Decision {
		if n.Add(1)%2 == 0 {
			return placement.Decision{Outcome: placement.Placed, ClusterID: bad}
		}
		return placement.Decision{Outcome: placement.Placed, ClusterID: fine}
	})
	r.start()
	versions := r.submit(100)
	r.when("every Job of the good cluster", func() bool { return good.count() == 50 }, func() any { return good.count() })
	r.when("the frozen cluster's attempts to be flagged", func() bool {
		flagged := 0
		for _, v := range versions {
			if a := r.attempt(v); a.ClusterID == bad && a.UnreachableSince != nil && a.State == process.Creating {
				flagged++
			}
		}
		return flagged == 50
	}, nil)
	if most.Load() > 4 {
		t.Errorf("%d create requests at once, want at most 4", most.Load())
	}
}

func TestClusterComesAndGoes(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.start()
	id := r.add("late", a) // after the start
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	r.cancel(v)
	r.state(v, process.Cancelled)
	if err := r.db.DeleteCluster(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	r.when("its workers to stop", func() bool { return r.d.fleet.worker(id) == nil }, nil)
}

func TestFlagOutlivesARestartUntilTheClusterAnswers(t *testing.T) {
	r, a, v := runningJob(t)
	var down atomic.Bool
	down.Store(true)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if down.Load() {
			hangUp(w)
			return
		}
		next(w, q)
	})
	since := r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil }).UnreachableSince
	r.restart()
	// Something else that passes through the same worker shows that it has looked.
	other := r.submit(1)[0]
	r.until(other, "the flag on a new attempt", func(a process.Attempt) bool { return a.UnreachableSince != nil })
	if again := r.attempt(v); again.UnreachableSince == nil || !again.UnreachableSince.Equal(*since) {
		t.Errorf("unreachable since %v, was %v", again.UnreachableSince, since)
	}
	if n := len(r.events(event.Reachable)); n != 0 {
		t.Errorf("%d times told that it answers again", n)
	}
	down.Store(false)
	r.until(v, "the flag to go", func(a process.Attempt) bool { return a.UnreachableSince == nil })
}

func TestNewCapacityWakesThoseThatWait(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	id := r.add("a", a)
	var room atomic.Bool
	r.placer.set(func(string, placement.Request) placement.Decision {
		if room.Load() {
			return placement.Decision{Outcome: placement.Placed, ClusterID: id}
		}
		return wait("No node has a GPU.")
	})
	r.start()
	v := r.submit(1)[0]
	r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == "no-room" })
	r.quiet()
	room.Store(true)
	c, err := r.db.Cluster(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c.Observed.Capacity = &cluster.Capacity{ObservedAt: time.Now().UTC(), Nodes: 1, Resources: map[string]cluster.ResourceCapacity{"nvidia.com/gpu": {Free: 1}}}
	if err := r.db.Observe(t.Context(), id, c.Observed); err != nil { // no event: the health is the same
		t.Fatal(err)
	}
	r.state(v, process.Queued)
}
