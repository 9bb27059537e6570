package health

import (
	"errors"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// hand drives the check of one cluster by hand: its time is a fake one, its cluster and its connections are real.
type hand struct {
	t        *testing.T
	w        *world
	api      *fakeAPI
	clock    *clocktesting.FakeClock
	registry *kube.Registry
	m        *Monitor
	c        *check
}

func byHand(t *testing.T) *hand {
	h := &hand{t: t, api: newFakeAPI(t), clock: clocktesting.NewFakeClock(time.Now())}
	h.w = &world{rows: map[string]cluster.Cluster{"a": {ID: "a", Active: true, ConfigRevision: 1}}, apis: map[string]*fakeAPI{"a": h.api}, observed: map[string]int{}}
	h.restart()
	h.pass(time.Minute)
	h.is(cluster.Ready)
	return h
}

// restart is a new process on the same database.
func (h *hand) restart() {
	if h.registry != nil {
		h.registry.Close()
	} else {
		h.t.Cleanup(func() { h.registry.Close() })
	}
	h.registry = kube.NewRegistry(kube.Options{Source: h.w, Connector: h.w, DefaultNamespace: "jobs"})
	h.m = New(Options{Store: h.w, Clients: h.registry, Clock: h.clock})
	row, err := h.w.Cluster(h.t.Context(), "a")
	if err != nil {
		h.t.Fatal(err)
	}
	h.c = newCheck(h.m, row)
	h.m.checks["a"] = h.c
	h.c.once(h.t.Context())
}

// pass lets time pass, with a look whenever one is due.
func (h *hand) pass(d time.Duration) {
	for d > 0 {
		step := min(d, h.c.pause())
		h.clock.Step(step)
		h.c.once(h.t.Context())
		d -= step
	}
}

func (h *hand) cut(yes bool) { h.api.set(func() { h.api.cut = yes }) }

func (h *hand) is(want cluster.Health) {
	h.t.Helper()
	if got := h.w.seen("a"); got.Health != want {
		h.t.Fatalf("it is %s (%s: %s), want %s", got.Health, got.Reason, got.Message, want)
	}
}

// went says through which states the cluster went since it was first ready.
func (h *hand) went(want ...cluster.Health) {
	h.t.Helper()
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	var got []cluster.Health
	for _, o := range h.w.history[1:] {
		got = append(got, o.Health)
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("it went %v, want %v", got, want)
	}
}

func TestB56CutOfTwoSecondsIsNothing(t *testing.T) {
	h := byHand(t)
	h.cut(true)
	h.c.once(t.Context()) // somebody looks just then
	h.pass(2 * time.Second)
	h.cut(false)
	h.pass(time.Hour)
	h.went()
}

func TestB56CutOfFourteenMinutesIsSuspect(t *testing.T) {
	h := byHand(t)
	h.pass(3 * time.Hour) // the age of what runs there counts for nothing
	h.cut(true)
	h.pass(14 * time.Minute)
	h.is(cluster.Suspect)
	h.cut(false)
	h.pass(time.Hour)
	h.went(cluster.Suspect, cluster.Ready)
}

func TestB56CutOfSixteenMinutesIsLostFifteenAfterTheDisconnect(t *testing.T) {
	h := byHand(t)
	at := h.clock.Now()
	h.cut(true)
	h.pass(16 * time.Minute)
	h.is(cluster.Lost)
	seen := h.w.seen("a")
	// A probe comes every 10 s or so, so that is how late the disconnect is noticed.
	if after := seen.Since.Sub(at); after < 15*time.Minute-time.Second || after > 15*time.Minute+15*time.Second {
		t.Errorf("lost %s after the disconnect", after)
	}
	if got := seen.Unreachable.Sub(at); got < -time.Second || got > 15*time.Second {
		t.Errorf("unreachable since %s after the disconnect", got)
	}
	if c := seen.Condition(cluster.Reachable); c.Status != cluster.False || c.Since.Sub(at) > 30*time.Second {
		t.Errorf("condition %+v", c)
	}
	h.cut(false)
	h.pass(time.Minute)
	h.went(cluster.Suspect, cluster.Lost, cluster.Ready)
	if seen := h.w.seen("a"); seen.Unreachable != nil || seen.Reason != "" {
		t.Errorf("back: %+v", seen)
	}
}

func TestB56OurOwnDowntimeIsNoOutage(t *testing.T) {
	h := byHand(t)
	h.clock.Step(2 * time.Hour)
	h.restart()
	h.pass(time.Hour)
	h.went()
}

func TestB56RestartDuringACutStartsTheGraceAnew(t *testing.T) {
	h := byHand(t)
	h.cut(true)
	h.pass(10 * time.Minute)
	before := h.w.seen("a").Condition(cluster.Reachable).Since
	h.clock.Step(2 * time.Hour)
	h.restart()
	h.is(cluster.Suspect)
	h.pass(14 * time.Minute)
	h.is(cluster.Suspect)
	if again := h.w.seen("a").Condition(cluster.Reachable).Since; !again.Equal(before) {
		t.Errorf("the condition is false since %s, was since %s: its status did not change", again, before)
	}
	h.pass(2 * time.Minute)
	h.is(cluster.Lost) // it is finite
	h.went(cluster.Suspect, cluster.Lost)
}

// A process that is stopped and goes on, such as that of a laptop, has not looked meanwhile.
func TestB56TimeInWhichTheProcessStoodStillIsNoOutage(t *testing.T) {
	h := byHand(t)
	h.cut(true)
	h.pass(time.Minute)
	h.clock.Step(2 * time.Hour)
	h.pass(13 * time.Minute)
	h.is(cluster.Suspect)
	h.pass(3 * time.Minute)
	h.is(cluster.Lost)
}

func TestB56UnreadableKubeconfigEndsAsACutDoes(t *testing.T) {
	h := byHand(t)
	at := h.clock.Now()
	h.w.mu.Lock()
	h.w.broken = errors.New("the secret cannot be read")
	h.w.mu.Unlock()
	h.restart() // while the old connection lasts nothing is lost
	h.pass(14 * time.Minute)
	h.is(cluster.Suspect)
	if o := h.w.seen("a"); o.Reason != string(kube.Provider) {
		t.Errorf("reason %s: %s", o.Reason, o.Message)
	}
	h.pass(2 * time.Minute)
	h.is(cluster.Lost)
	if after := h.w.seen("a").Since.Sub(at); after < 15*time.Minute-time.Second || after > 15*time.Minute+15*time.Second {
		t.Errorf("lost after %s", after)
	}
	h.went(cluster.Suspect, cluster.Lost)
}

// Whoever notices first starts the clock: here what a failed create or a broken watch reports, before any probe.
func TestB56NoticedByTheWorkBeforeAProbe(t *testing.T) {
	h := byHand(t)
	h.cut(true)
	at := h.clock.Now()
	if since := h.m.Notice("a", at); !since.Equal(at) {
		t.Errorf("the clock runs since %s, want %s", since, at)
	}
	select {
	case <-h.c.wake:
	default:
		t.Error("the cluster is not looked at at once")
	}
	h.clock.Step(9 * time.Second)
	if since := h.m.Notice("a", h.clock.Now()); !since.Equal(at) {
		t.Errorf("a second notice moved the clock to %s", since)
	}
	h.c.once(t.Context())
	h.is(cluster.Suspect)
	h.pass(15*time.Minute - 9*time.Second)
	h.is(cluster.Lost)
	if got := h.w.seen("a").Unreachable; !got.Equal(stamp(at)) {
		t.Errorf("unreachable since %s, want %s", got, at)
	}
	h.cut(false)
	h.m.Answered("a")
	select {
	case <-h.c.wake:
	default:
		t.Error("the return is not looked at at once")
	}
	h.c.once(t.Context())
	h.is(cluster.Ready)
}
