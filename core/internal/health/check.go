package health

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	// suspectAfter is how many probes in a row must fail: one lost packet is no outage. The second comes soon.
	suspectAfter = 2
	recheckSoon  = 2 * time.Second
	// rewriteEvery is how often an unchanged state is stored again, so that the times in it stay true to a minute.
	rewriteEvery = time.Minute
	// kickPause is the shortest time between two checks on demand.
	kickPause = time.Second
	// slowFacts is how often identity and namespace are looked at.
	slowFacts = 5 * time.Minute
)

// check is what is known of one cluster. Everything but the kick belongs to its goroutine.
type check struct {
	m    *Monitor
	id   string
	log  hclog.Logger
	stop context.CancelFunc
	wake chan struct{}

	mu  sync.Mutex
	row cluster.Cluster // as last read

	seen     cluster.Observed // what is true now
	stored   cluster.Observed // what the store has
	storedAt time.Time

	failures    int
	unreachable time.Time // since when; zero: reachable, or not known since this start
	capacityAt  time.Time
	factsAt     time.Time
	facts       *kube.Client // that the slow facts were read from
	podsDenied  time.Time    // when listing the pods of all namespaces was refused
}

func newCheck(m *Monitor, row cluster.Cluster) *check {
	c := &check{m: m, id: row.ID, row: row, log: m.o.Logger.With("cluster", row.ID, "name", row.Name), wake: make(chan struct{}, 1)}
	c.seen, c.stored = row.Observed, row.Observed
	// The clock of an outage counts what this process saw of it, never the time in which nobody looked.
	c.seen.Unreachable = nil
	return c
}

func (c *check) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// edited takes a row that may have been edited; a changed connection is tried at once.
func (c *check) edited(row cluster.Cluster) {
	c.mu.Lock()
	changed := c.row.ConfigRevision != row.ConfigRevision || c.row.Type != row.Type || c.row.Namespace != row.Namespace
	c.row = row
	c.mu.Unlock()
	if changed {
		c.kick()
	}
}

func (c *check) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	demanded := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			demanded = true
			if wait := kickPause - time.Since(last); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		}
		last = time.Now()
		if demanded {
			c.capacityAt, demanded = time.Time{}, false
		}
		c.once(ctx)
		next := jittered(min(c.m.o.Interval, c.m.o.CapacityEvery))
		if c.failures > 0 && c.failures < suspectAfter {
			next = min(next, recheckSoon)
		}
		timer.Reset(next)
	}
}

// once looks at everything and stores what is new.
func (c *check) once(ctx context.Context) {
	now := time.Now()
	client, version, err := c.probe(ctx)
	if ctx.Err() != nil {
		return
	}
	c.seen.CheckedAt = stamp(now)
	counted := map[string]bool(nil)
	if err == nil {
		c.seen.Version = version
		c.readSlowFacts(ctx, client, now)
		counted = c.readCapacity(ctx, client, now)
	}
	if ctx.Err() != nil {
		return
	}
	c.judge(err, time.Now())
	c.store(ctx, counted)
}

// probe reaches the cluster and asks for what the work needs first: its version, without rights, and one Job.
func (c *check) probe(ctx context.Context) (*kube.Client, string, error) {
	build, cancel := context.WithTimeout(ctx, 2*c.m.o.Timeout)
	client, err := c.m.o.Clients.Get(build, c.id)
	cancel()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel = context.WithTimeout(ctx, c.m.o.Timeout)
	defer cancel()
	version, err := serverVersion(ctx, client)
	if err != nil {
		return client, "", err
	}
	return client, version, mayWork(ctx, client)
}

// judge turns the outcome of a probe into a state.
func (c *check) judge(err error, now time.Time) {
	class := kube.Classify(err)
	state, reason, message := cluster.Ready, "", ""
	switch {
	case err == nil:
		c.failures, c.unreachable = 0, time.Time{}
	case class.Unreachable():
		c.failures++
		if c.unreachable.IsZero() {
			c.unreachable = now
		}
		state, reason, message = cluster.Suspect, string(class), sentence(class, err)
		if now.Sub(c.unreachable) >= c.m.o.LostAfter {
			state = cluster.Lost
		}
	case class == kube.Server || class == kube.Throttled:
		// It answers, if not well: placements go on unless it lasts.
		c.failures++
		c.unreachable = time.Time{}
		state, reason, message = cluster.Degraded, string(class), sentence(class, err)
		if c.failures > suspectAfter {
			state = cluster.Suspect
		}
	default:
		c.failures++
		c.unreachable = time.Time{}
		state, reason, message = cluster.Suspect, string(class), sentence(class, err)
	}
	if state == cluster.Suspect && class.Unreachable() && c.failures < suspectAfter && c.seen.Health != cluster.Suspect && c.seen.Health != cluster.Lost && known(c.seen.Health) {
		return // the state stays until the second failure; the clock of the outage runs already
	}
	if c.seen.Health != state {
		c.seen.Since = stamp(now)
		level := hclog.Info
		if state != cluster.Ready {
			level = hclog.Warn
		}
		c.log.Log(level, "cluster is "+string(state), "was", string(c.seen.Health), "reason", reason, "message", message)
	}
	c.seen.Health, c.seen.Reason, c.seen.Message = state, reason, message
	c.seen.Unreachable = nil
	if !c.unreachable.IsZero() {
		c.seen.Unreachable = new(stamp(c.unreachable))
	}
}

func known(h cluster.Health) bool { return h != "" && h != cluster.New }

// store writes what is new, and tells what the stored capacity counts only when it is stored: in between an attempt may
// be counted twice, never not at all.
func (c *check) store(ctx context.Context, counted map[string]bool) {
	if sameButTimes(c.seen, c.stored) && time.Since(c.storedAt) < rewriteEvery {
		c.tell(counted)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.o.Timeout)
	defer cancel()
	err := c.m.o.Store.Observe(ctx, c.id, c.seen)
	switch {
	case err == nil:
		c.stored, c.storedAt = c.seen, time.Now()
		c.tell(counted)
	case errors.Is(err, cluster.ErrNotFound): // removed meanwhile; the monitor is about to end this check
	case ctx.Err() == nil:
		c.log.Warn("cannot store what was seen of the cluster; trying again", "error", err)
	}
}

func (c *check) tell(counted map[string]bool) {
	if counted != nil && c.m.o.Counted != nil {
		c.m.o.Counted(c.id, counted)
	}
}

// sameButTimes compares two states without the times of looking.
func sameButTimes(a, b cluster.Observed) bool {
	a.CheckedAt, b.CheckedAt = time.Time{}, time.Time{}
	if a.Capacity != nil && b.Capacity != nil {
		ca, cb := *a.Capacity, *b.Capacity
		ca.ObservedAt, cb.ObservedAt = time.Time{}, time.Time{}
		a.Capacity, b.Capacity = &ca, &cb
	}
	return reflect.DeepEqual(a, b)
}

func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// sentence says what is wrong to a person.
func sentence(class kube.Class, err error) string {
	texts := map[kube.Class]string{
		kube.DNS: "Its host name has no address", kube.Denied: "Its address is not allowed", kube.Refused: "Nothing listens at its address",
		kube.Timeout: "No answer in time", kube.Broken: "The connection broke", kube.TLS: "Its certificate cannot be verified",
		kube.NotKubernetes: "What answers is no Kubernetes API", kube.Credentials: "The cluster does not accept the credentials",
		kube.Permissions: "The account may not do what jobs need", kube.Server: "The API server reports an error",
		kube.Throttled: "The API server is overloaded", kube.Provider: "No connection from its provider",
	}
	text, there := texts[class]
	if !there {
		text = "The check failed"
	}
	const most = 500
	detail := err.Error()
	if len(detail) > most {
		detail = detail[:most] + "…"
	}
	return fmt.Sprintf("%s: %s", text, detail)
}
