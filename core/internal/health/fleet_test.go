package health

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// Two good clusters, one that takes connections and says nothing, one that takes 20 s for each answer, scaled down to
// twice the patience of a look. The good ones are looked at as often as without the bad ones, nothing piles up, and the
// bad ones say since when and why.
func TestB53BadClustersSlowNoOther(t *testing.T) {
	w, _ := startWith(t, func(o *Options) { o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: t.Output()}) }, "good", "fine", "mute", "slow")
	looks := func(id string) int { a := w.apis[id]; a.mu.Lock(); defer a.mu.Unlock(); return a.calls["/version"] }
	eventually(t, "all ready", func() bool {
		return !slices.ContainsFunc([]string{"good", "fine", "mute", "slow"}, func(id string) bool { return w.seen(id).Health != cluster.Ready })
	})
	// span is how long the good clusters take for so many looks.
	span := func() time.Duration {
		from, to, at := looks("good"), looks("fine"), time.Now()
		eventually(t, "more looks", func() bool { return looks("good") >= from+30 && looks("fine") >= to+30 })
		return time.Since(at)
	}
	before := span()
	w.apis["mute"].set(func() { w.apis["mute"].hang = true })
	w.apis["slow"].set(func() { w.apis["slow"].slow = 600 * time.Millisecond })
	for _, id := range []string{"mute", "slow"} {
		eventually(t, id+" is lost", func() bool { return w.seen(id).Health == cluster.Lost })
	}
	goroutines := runtime.NumGoroutine()
	after := span()
	// The bound is generous: one look that waited for a bad cluster would take 300 ms, 30 of them 9 s.
	if after > 3*before+2*time.Second {
		t.Errorf("30 looks at the good clusters took %s beside bad ones, %s without", after, before)
	}
	for range 5 {
		span()
	}
	if now := runtime.NumGoroutine(); now > goroutines+20 {
		t.Errorf("%d goroutines, were %d", now, goroutines)
	}
	for _, id := range []string{"good", "fine"} {
		if o := w.seen(id); o.Health != cluster.Ready {
			t.Errorf("%s is %s: %s", id, o.Health, o.Message)
		}
	}
	for _, id := range []string{"mute", "slow"} {
		if o := w.seen(id); o.Reason != "timeout" || o.Message == "" || o.Unreachable == nil || o.Since.IsZero() {
			t.Errorf("%s: %+v", id, o)
		}
	}
}

// Jobs that end one after the other have the capacity read now and then, not each time, and nothing else is asked.
func TestManyEndedJobsCostFewReadings(t *testing.T) {
	const pause = 500 * time.Millisecond
	w, m := startWith(t, func(o *Options) {
		o.Interval, o.CapacityEvery, o.FreedPause, o.Timeout = time.Hour, time.Hour, pause, 5*time.Second
	}, "a")
	eventually(t, "ready", func() bool { return w.seen("a").Health == cluster.Ready })
	api := w.apis["a"]
	calls := func(path string) int { api.mu.Lock(); defer api.mu.Unlock(); return api.calls[path] }
	nodes, versions := calls("/api/v1/nodes"), calls("/version")
	began := time.Now()
	eventually(t, "three readings", func() bool {
		m.Freed("a")
		return calls("/api/v1/nodes") >= nodes+3
	})
	if took := time.Since(began); took < 2*pause {
		t.Errorf("three readings in %s, want at most one in %s", took, pause)
	}
	if n := calls("/version") - versions; n > 0 {
		t.Errorf("%d probes for jobs that ended", n)
	}
}

// A reading of capacity that hangs does not hold up the look that somebody's failed call asks for.
func TestB56NoticeEndsAReadingThatHangs(t *testing.T) {
	w, m := startWith(t, func(o *Options) { o.CapacityTimeout = time.Hour }, "a")
	api := w.apis["a"]
	eventually(t, "ready", func() bool { return w.seen("a").Health == cluster.Ready })
	api.set(func() { api.hangAt = "/api/v1/nodes" })
	nodes := func() int { api.mu.Lock(); defer api.mu.Unlock(); return api.calls["/api/v1/nodes"] }
	from := nodes()
	eventually(t, "a reading that hangs", func() bool { return nodes() > from })
	api.set(func() { api.hang = true })
	m.Notice("a", time.Now())
	eventually(t, "suspect", func() bool { return w.seen("a").Health == cluster.Suspect })
}
