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
	// recheckSoon is the time between two probes while it is open whether something is amiss.
	recheckSoon = 2 * time.Second
	// rewriteEvery is how often an unchanged state is stored again, so that the times in it stay true to a minute.
	rewriteEvery = time.Minute
	// kickPause is the shortest time between two checks on demand.
	kickPause = time.Second
	// stoodStill is the least time without any step of a check that counts as a standstill and not as a busy machine.
	stoodStill = 30 * time.Second
	// slowFacts is how often identity, namespace and clock are looked at.
	slowFacts = 5 * time.Minute
)

// Reasons of conditions, beside the classes of kube.
const (
	reasonUnreachable = "unreachable"
	reasonNotServed   = "not-served"
	reasonStale       = "old-connection"
	reasonMissing     = "missing"
	reasonTerminating = "terminating"
	reasonUnseen      = "unseen"
	reasonIdentity    = "identity-changed"
	reasonSkew        = "skew"
	reasonExpired     = "expired"
	reasonExpiring    = "expiring"
	reasonNarrow      = "own-pods-only"
)

// check is what is known of one cluster. Everything but the kicks, the row and the outage belongs to its goroutine.
type check struct {
	m      *Monitor
	id     string
	log    hclog.Logger
	stop   context.CancelFunc
	wake   chan struct{}
	freed  chan struct{}
	outage outage

	mu  sync.Mutex
	row cluster.Cluster // as last read
	// given: the row has another identity or namespace than it had when this check began or last looked.
	given bool
	// stopReading ends the reading of capacity that is under way, or was; nil: there was none.
	stopReading context.CancelFunc

	seen     cluster.Observed // what is true now
	stored   cluster.Observed // what the store has
	storedAt time.Time

	awakeAt    time.Time // when this process was last seen to run
	capacityAt time.Time
	factsAt    time.Time
	facts      *kube.Client // that the slow facts were read from
	refused    []string     // rights that every Job needs and the account has not
	podsDenied time.Time    // when listing the pods of all namespaces was refused
}

func newCheck(m *Monitor, row cluster.Cluster) *check {
	c := &check{
		m: m, id: row.ID, row: row, log: m.o.Logger.With("cluster", row.ID, "name", row.Name),
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
	}
	c.seen, c.stored = row.Observed, row.Observed
	// The clock of an outage counts what this process saw of it, never the time in which nobody looked.
	c.seen.Unreachable = nil
	return c
}

func (c *check) kick(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// edited takes a row that may have been edited; a changed connection is tried at once.
func (c *check) edited(row cluster.Cluster) {
	c.mu.Lock()
	identity := c.row.Observed.Identity
	changed := c.row.ConfigRevision != row.ConfigRevision || c.row.Type != row.Type || c.row.Namespace != row.Namespace ||
		identity != "" && identity != row.Observed.Identity
	c.given = c.given || identity != row.Observed.Identity || c.row.Namespace != row.Namespace
	c.row = row
	c.mu.Unlock()
	if changed {
		c.kick(c.wake)
	}
}

// noticed looks at once at a cluster that somebody could not reach: a reading of capacity may take long and holds it up.
func (c *check) noticed() {
	c.mu.Lock()
	if c.stopReading != nil {
		c.stopReading()
	}
	c.mu.Unlock()
	c.kick(c.wake)
}

func (c *check) present() cluster.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.row
}

func (c *check) run(ctx context.Context) {
	clock := c.m.o.Clock
	look := clock.NewTimer(0)
	defer look.Stop()
	count := clock.NewTimer(time.Hour) // of capacity alone, when jobs ended
	count.Stop()
	defer count.Stop()
	var last time.Time
	demanded, counting := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			demanded = true
			if wait := kickPause - clock.Since(last); wait > 0 {
				look.Reset(wait)
				continue
			}
		case <-c.freed:
			if !counting {
				counting = true
				count.Reset(max(0, c.m.o.FreedPause-clock.Since(c.capacityAt)))
			}
			continue
		case <-count.C():
			counting = false
			c.recount(ctx)
			continue
		case <-look.C():
		}
		last = clock.Now()
		if demanded {
			c.capacityAt, demanded = time.Time{}, false
		}
		c.once(ctx)
		look.Reset(c.pause())
	}
}

// pause is the time to the next probe. Whatever turns the cluster suspect or lost is looked at when it is due.
func (c *check) pause() time.Duration {
	now := c.m.o.Clock.Now()
	next := jittered(min(c.m.o.Interval, c.m.o.CapacityEvery))
	soon := func(since time.Time, after time.Duration) {
		if left := after - now.Sub(since); left > 0 {
			next = min(next, max(left, recheckSoon/20))
		}
	}
	if since := c.outage.start(); !since.IsZero() {
		if now.Sub(since) < c.m.o.SuspectAfter {
			next = min(next, recheckSoon)
		}
		soon(since, c.m.o.SuspectAfter)
		soon(since, c.m.o.LostAfter)
	}
	if s := c.seen.Condition(cluster.Serving); s.Status == cluster.False {
		soon(s.Since, c.m.o.SuspectAfter)
	}
	return next
}

// once looks at everything and stores what is new.
func (c *check) once(ctx context.Context) {
	at := c.m.o.Clock.Now()
	c.awake(at)
	client, version, err := c.probe(ctx)
	if ctx.Err() != nil || errors.Is(err, cluster.ErrNotFound) || errors.Is(err, kube.ErrClosed) {
		return // removed, or the end: nothing is known of the cluster
	}
	now := c.m.o.Clock.Now()
	c.awake(now)
	c.seen.CheckedAt = stamp(now)
	c.learn(client, err, at, now)
	counted := map[string]bool(nil)
	if err == nil {
		c.seen.Version = version
		c.judgeCredentials(client, now)
		c.readSlowFacts(ctx, client, now)
		counted = c.readCapacity(ctx, client, now)
	}
	if ctx.Err() != nil {
		return
	}
	c.judge(c.m.o.Clock.Now())
	c.store(ctx, counted)
}

// recount reads the capacity alone.
func (c *check) recount(ctx context.Context) {
	get, cancel := context.WithTimeout(ctx, c.m.o.Timeout)
	client, err := c.m.o.Clients.Get(get, c.id)
	cancel()
	if err != nil || !c.outage.start().IsZero() || c.seen.Condition(cluster.CapacityKnown).Status == cluster.False {
		return // the probes have to do with it
	}
	c.capacityAt = time.Time{}
	if counted := c.readCapacity(ctx, client, c.m.o.Clock.Now()); counted != nil && ctx.Err() == nil {
		c.store(ctx, counted)
	}
}

// awake takes a time in which this process stood still out of the outage: nobody looked then.
func (c *check) awake(now time.Time) {
	most := max(stoodStill, 2*c.m.o.Interval+6*c.m.o.Timeout)
	if gap := now.Sub(c.awakeAt); !c.awakeAt.IsZero() && gap > most {
		c.outage.skip(gap)
	}
	c.awakeAt = now
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

// lost says whether an error means that the cluster cannot be reached as it is configured: network and provider alike.
func lost(class kube.Class) bool { return class.Unreachable() || class == kube.NotKubernetes }

// set gives a condition a status, as the store keeps times.
func (c *check) set(t cluster.ConditionType, s cluster.Status, reason, message string, at time.Time) {
	c.seen.Set(t, s, reason, message, stamp(at))
}

// learn takes the outcome of a probe that began at a time.
func (c *check) learn(client *kube.Client, err error, at, now time.Time) {
	class := kube.Classify(err)
	if client == nil && !lost(class) {
		class = kube.Provider // whatever it is, there is no connection
	}
	c.learnProvider(client, now)
	if err != nil && lost(class) {
		since, _ := c.outage.begin(at)
		if now.Sub(since) < c.m.o.SuspectAfter && c.seen.Condition(cluster.Reachable).Status == cluster.True {
			return // one lost packet is no outage, but its clock runs
		}
		c.set(cluster.Reachable, cluster.False, string(class), sentence(class, err), now)
		for _, t := range []cluster.ConditionType{cluster.Authenticated, cluster.Permitted, cluster.Serving} {
			c.set(t, cluster.Unknown, reasonUnreachable, "", now)
		}
		c.facts = nil // another cluster may come back
		return
	}
	c.outage.end()
	c.set(cluster.Reachable, cluster.True, "", "", now)
	yes := func(types ...cluster.ConditionType) {
		for _, t := range types {
			c.set(t, cluster.True, "", "", now)
		}
	}
	switch class {
	case kube.OK:
		yes(cluster.Authenticated, cluster.Serving)
		c.judgeRights(now)
	case kube.Credentials:
		yes(cluster.Serving)
		c.set(cluster.Authenticated, cluster.False, string(class), sentence(class, err), now)
		c.set(cluster.Permitted, cluster.Unknown, string(class), "", now)
	case kube.Permissions:
		yes(cluster.Serving, cluster.Authenticated)
		c.set(cluster.Permitted, cluster.False, string(class), sentence(class, err), now)
	default: // it answers, if not well: placements go on unless it lasts
		c.set(cluster.Serving, cluster.False, string(class), sentence(class, err), now)
	}
}

func (c *check) learnProvider(client *kube.Client, now time.Time) {
	kind := c.present().Type
	switch {
	case c.m.o.Served != nil && !c.m.o.Served(kind):
		c.set(cluster.ProviderServed, cluster.False, reasonNotServed, fmt.Sprintf("No provider plugin serves the type %q now.", kind), now)
	case client != nil && client.Stale() != nil:
		c.set(cluster.ProviderServed, cluster.False, reasonStale, sentence(kube.Provider, client.Stale()), now)
	default:
		c.set(cluster.ProviderServed, cluster.True, "", "", now)
	}
}

// judge derives the state from the conditions.
func (c *check) judge(now time.Time) {
	silent := time.Duration(0)
	since := c.outage.start()
	if !since.IsZero() {
		silent = now.Sub(since)
	}
	state, cause := cluster.Judge(c.seen.Conditions, silent, now, cluster.Grace{Suspect: c.m.o.SuspectAfter, Lost: c.m.o.LostAfter})
	reason, message := "", ""
	if cause != nil {
		reason, message = cause.Reason, cause.Message
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
	if !since.IsZero() && c.seen.Condition(cluster.Reachable).Status == cluster.False {
		c.seen.Unreachable = new(stamp(since))
	}
}

// store writes what is new, and tells what the stored capacity counts only when it is stored: in between an attempt may
// be counted twice, never not at all.
func (c *check) store(ctx context.Context, counted map[string]bool) {
	if sameButTimes(c.seen, c.stored) && c.m.o.Clock.Since(c.storedAt) < rewriteEvery {
		c.tell(counted)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.o.Timeout)
	defer cancel()
	err := c.m.o.Store.Observe(ctx, c.id, c.seen)
	switch {
	case err == nil:
		c.stored, c.storedAt = c.seen, c.m.o.Clock.Now()
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
