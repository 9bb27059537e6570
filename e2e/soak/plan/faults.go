// Package plan decides, from a seed alone, what a soak does: which processes are submitted when, and what is broken when.
// The same options give the same plan on every machine.
package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Options are all that a plan depends on.
type Options struct {
	Seed      uint64
	Duration  time.Duration // of submissions and faults
	Processes int
	Clusters  int
	Replicas  int  // servers; 0 and 1 are one
	Calm      bool // nothing is broken
	Patient   bool // nobody cancels
}

// FaultKind is a way to break something.
type FaultKind string

// Kinds of faults. Those of requests concern what passes between the server and one cluster.
const (
	KillCore    FaultKind = "kill core"          // SIGKILL, back on the same data after For
	StallCore   FaultKind = "freeze core"        // SIGSTOP, SIGCONT after For; only where there are several
	KillPlugin  FaultKind = "kill plugin"        // SIGKILL to the plugin process number Count
	FreezeLink  FaultKind = "freeze link"        // connections stay open and carry nothing for For
	RefuseLink  FaultKind = "refuse link"        // connections are closed and refused for For
	CutLink     FaultKind = "cut connections"    // all open ones, once
	StopServer  FaultKind = "restart API server" // stopped, started again after For
	StallServer FaultKind = "freeze API server"  // SIGSTOP, SIGCONT after For
	LoseAnswer  FaultKind = "lose answers"       // the next Count writes are done and never answered
	DropRequest FaultKind = "drop requests"      // the next Count requests do not arrive
	FailRequest FaultKind = "error answers"      // the next Count requests are answered with Status
	GoneWatch   FaultKind = "expired watches"    // the next Count watches are told 410, the open ones are cut
	CutLog      FaultKind = "cut log streams"    // the next Count log streams end after Bytes
	SlowRequest FaultKind = "slow requests"      // the next Count requests take For longer
)

// Fault is one thing that is broken at one time.
type Fault struct {
	At      time.Duration // since the begin
	Kind    FaultKind
	Cluster int           // whose; core and plugins are nobody's
	Replica int           // which server
	For     time.Duration // how long it lasts
	Count   int           // how many requests; which plugin
	Status  int
	Bytes   int64
}

func (f Fault) String() string {
	text := fmt.Sprintf("%7.2fs  %-18s", f.At.Seconds(), f.Kind)
	switch f.Kind {
	case KillCore, StallCore, KillPlugin:
		if f.Replica > 0 {
			text += fmt.Sprintf("  server %d", f.Replica)
		}
	default:
		text += fmt.Sprintf("  cluster %d", f.Cluster)
	}
	if f.Count > 0 || f.Kind == KillPlugin {
		text += fmt.Sprintf("  number %d", f.Count)
	}
	if f.For > 0 {
		text += fmt.Sprintf("  for %.2fs", f.For.Seconds())
	}
	if f.Status > 0 {
		text += fmt.Sprintf("  status %d", f.Status)
	}
	if f.Bytes > 0 {
		text += fmt.Sprintf("  after %d bytes", f.Bytes)
	}
	return text
}

// recipe says how often a kind of fault comes and how bad it is.
type recipe struct {
	kind     FaultKind
	every    time.Duration // one in so long, at least one a soak
	shortest time.Duration
	longest  time.Duration
	most     int // requests
}

var recipes = []recipe{
	{kind: KillCore, every: 30 * time.Second, shortest: 1, longest: 2 * time.Second},
	{kind: KillPlugin, every: 25 * time.Second},
	{kind: FreezeLink, every: 50 * time.Second, shortest: time.Second, longest: 12 * time.Second},
	{kind: RefuseLink, every: 60 * time.Second, shortest: 500 * time.Millisecond, longest: 6 * time.Second},
	{kind: CutLink, every: 30 * time.Second},
	{kind: StopServer, every: 90 * time.Second, shortest: 1, longest: 4 * time.Second},
	{kind: StallServer, every: 75 * time.Second, shortest: time.Second, longest: 7 * time.Second},
	{kind: LoseAnswer, every: 12 * time.Second, most: 5},
	{kind: DropRequest, every: 20 * time.Second, most: 10},
	{kind: FailRequest, every: 20 * time.Second, most: 8},
	{kind: GoneWatch, every: 45 * time.Second, most: 2},
	{kind: CutLog, every: 15 * time.Second, most: 10},
	{kind: SlowRequest, every: 25 * time.Second, shortest: 50 * time.Millisecond, longest: 2 * time.Second, most: 40},
}

// stall is the further fault of several servers: long enough that the lease of a leader ends, and sometimes not.
var stall = recipe{kind: StallCore, every: 40 * time.Second, shortest: time.Second, longest: 20 * time.Second}

var statuses = []int{429, 500, 502, 503, 504}

// Faults returns what is broken, in order of time.
func (o Options) Faults() []Fault {
	if o.Calm {
		return nil
	}
	r := o.random(1)
	var all []Fault
	for _, c := range recipes {
		for range max(1, int(o.Duration/c.every)) {
			f := Fault{Kind: c.kind, At: o.Duration/20 + between(r, 0, o.Duration*9/10), Cluster: r.IntN(o.Clusters)}
			if c.longest > 0 {
				// In a short soak nothing is broken for most of it.
				f.For = between(r, c.shortest, max(c.shortest, min(c.longest, o.Duration/10)))
			}
			if c.most > 0 {
				f.Count = 1 + r.IntN(c.most)
			}
			switch c.kind {
			case KillPlugin:
				f.Count = r.IntN(1000)
			case FailRequest:
				f.Status = statuses[r.IntN(len(statuses))]
			case CutLog:
				f.Bytes = 1 + r.Int64N(20_000)
			}
			all = append(all, f)
		}
	}
	if o.Replicas > 1 {
		// A source of its own: the plan of one server is the same with and without these.
		r := o.random(3)
		for i := range all {
			all[i].Replica = r.IntN(o.Replicas)
		}
		for range max(1, int(o.Duration/stall.every)) {
			f := Fault{Kind: stall.kind, At: o.Duration/20 + between(r, 0, o.Duration*9/10), Replica: r.IntN(o.Replicas)}
			f.For = between(r, stall.shortest, max(stall.shortest, min(stall.longest, o.Duration/10)))
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

// random gives a source of its own for each part of the plan, so that a change of one does not change the others.
func (o Options) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, part)) }

func between(r *rand.Rand, a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(r.Int64N(int64(b-a)))
}
