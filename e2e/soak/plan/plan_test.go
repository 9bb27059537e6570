package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func options(seed uint64) Options {
	return Options{Seed: seed, Duration: 10 * time.Minute, Processes: 2000, Clusters: 3}
}

// The seed reproduces the schedule, and another seed gives another one.
func TestSameSeedSamePlan(t *testing.T) {
	a, b, c := options(7), options(7), options(8)
	if fmt.Sprint(a.Faults()) != fmt.Sprint(b.Faults()) || fmt.Sprint(a.Submissions()) != fmt.Sprint(b.Submissions()) {
		t.Error("two plans of one seed differ")
	}
	if fmt.Sprint(a.Faults()) == fmt.Sprint(c.Faults()) {
		t.Error("two seeds have the same faults")
	}
	if fmt.Sprint(a.Submissions()) == fmt.Sprint(c.Submissions()) {
		t.Error("two seeds have the same processes")
	}
}

// Every kind of fault comes in a soak of any length, at a time within it, on a cluster that there is.
func TestFaultsHaveEveryKind(t *testing.T) {
	for _, o := range []Options{options(1), {Seed: 1, Duration: 30 * time.Second, Processes: 20, Clusters: 1}} {
		seen := map[FaultKind]int{}
		all := o.Faults()
		for _, f := range all {
			seen[f.Kind]++
			if f.At < 0 || f.At >= o.Duration || f.Cluster < 0 || f.Cluster >= o.Clusters || f.For > o.Duration/10+time.Second {
				t.Errorf("out of bounds in %s: %v", o.Duration, f)
			}
		}
		for _, r := range recipes {
			if want := max(1, int(o.Duration/r.every)); seen[r.kind] != want {
				t.Errorf("%s in %s: %d, want %d", r.kind, o.Duration, seen[r.kind], want)
			}
		}
		if !slices.IsSortedFunc(all, func(a, b Fault) int { return int(a.At - b.At) }) {
			t.Error("the faults are not in order")
		}
	}
}

// Several servers have every fault of one at its time, and are stopped for a while besides.
func TestSeveralServersKeepThePlanOfOne(t *testing.T) {
	one, two := options(7), options(7)
	two.Replicas = 2
	var kept []Fault
	seen := map[int]int{}
	for _, f := range two.Faults() {
		if f.Kind == StallCore {
			seen[f.Replica]++
			continue
		}
		f.Replica = 0
		kept = append(kept, f)
	}
	if fmt.Sprint(kept) != fmt.Sprint(one.Faults()) {
		t.Error("the faults of one server are others when there are two")
	}
	if seen[0] == 0 || seen[1] == 0 || seen[0]+seen[1] != 15 {
		t.Errorf("stopped for a while: %v, want 15 of both servers", seen)
	}
}

func TestCalmHasNoFaults(t *testing.T) {
	o := options(1)
	o.Calm = true
	if got := o.Faults(); len(got) != 0 {
		t.Errorf("%d faults in a calm soak", len(got))
	}
}

// A process has what its kind says, and names are unique.
func TestSubmissions(t *testing.T) {
	o := options(3)
	seen := map[ProcessKind]int{}
	names := map[string]bool{}
	for _, p := range o.Submissions() {
		seen[p.Kind]++
		names[p.Name] = true
		if p.Lines < 1 || p.Every < 1 || p.At < 0 || p.At >= o.Duration || p.Cluster >= o.Clusters {
			t.Errorf("out of bounds: %+v", p)
		}
		if (p.CancelAfter > 0) != (p.Kind == Stopped) || (p.GPUs > 0) != (p.Kind == GPU) || (p.Kind == Fails) == p.Succeeds() && p.Kind != Retries {
			t.Errorf("not as its kind: %+v", p)
		}
	}
	if len(names) != o.Processes {
		t.Errorf("%d names of %d processes", len(names), o.Processes)
	}
	for _, m := range mix {
		if want := o.Processes * m.percent / 100; seen[m.kind] != want {
			t.Errorf("%d are %s, want %d", seen[m.kind], m.kind, want)
		}
	}
}

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		failing, retries, pods, code int
		succeeds                     bool
	}{{0, 0, 1, 0, true}, {1, 0, 1, 9, false}, {1, 1, 2, 0, true}, {2, 1, 2, 9, false}} {
		p := Process{Failing: c.failing, Retries: c.retries, Code: 9}
		if p.Pods() != c.pods || p.ExitCode() != c.code || p.Succeeds() != c.succeeds {
			t.Errorf("%+v: %d pods, code %d, succeeds %v", c, p.Pods(), p.ExitCode(), p.Succeeds())
		}
	}
}
