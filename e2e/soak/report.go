package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/check"
	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
)

// report is what a soak came to.
type report struct {
	options   options
	faults    map[plan.FaultKind]int
	client    clientCounts
	states    map[string]int
	latencies []latency
	result    check.Result
	judged    bool
}

// latency is one kind of waiting.
type latency struct {
	name    string
	samples []time.Duration
}

func (l *latency) add(from, to time.Time) {
	if !from.IsZero() && !to.IsZero() {
		l.samples = append(l.samples, to.Sub(from))
	}
}

// judge checks the evidence and counts it.
func (r *report) judge(in check.Input) {
	r.result, r.judged = check.Check(in), true
	r.states = map[string]int{}
	job, run, end := latency{name: "accepted to Job"}, latency{name: "Job to running pod"}, latency{name: "Job over to state"}
	stop := latency{name: "cancel to cancelled"}
	told, running := map[string]time.Time{}, map[string]time.Time{}
	for _, e := range in.Changes {
		if check.Terminal(e.State) && told[e.Attempt].IsZero() {
			told[e.Attempt] = e.At
		}
	}
	made, over := map[string]time.Time{}, map[string]time.Time{}
	for _, c := range in.Clusters {
		for _, j := range c.Jobs {
			made[j.Attempt], over[j.Attempt] = j.Created, j.Failed
			if j.Failed.IsZero() {
				over[j.Attempt] = j.Complete
			}
		}
		for _, p := range c.Pods {
			if first := running[p.Attempt]; first.IsZero() || p.Running.Before(first) {
				running[p.Attempt] = p.Running
			}
		}
	}
	for _, a := range in.Attempts {
		r.states[a.State]++
		job.add(a.Created, made[a.ID])
		run.add(made[a.ID], running[a.ID])
		if a.State == "cancelled" {
			stop.add(a.CancelRequested, a.Ended)
		} else {
			end.add(over[a.ID], told[a.ID])
		}
	}
	r.latencies = []latency{job, run, end, stop}
}

// most is how many violations are printed.
const most = 60

func (r report) print(out io.Writer) {
	if !r.judged {
		return
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	o := r.options
	fmt.Fprintf(w, "\nSEED\t%d\nPROCESSES\t%d in %s on %d clusters\n", o.Seed, o.Processes, o.Duration, o.Clusters)
	fmt.Fprintf(w, "ACCEPTED\t%d, %d cancels, %d requests sent again\n", r.client.accepted, r.client.cancels, r.client.retried)
	for _, state := range slices.Sorted(maps.Keys(r.states)) {
		fmt.Fprintf(w, "  %s\t%d\n", state, r.states[state])
	}
	fmt.Fprintln(w, "\nFAULT\tHAPPENED")
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(w, "  %s\t%d\n", kind, r.faults[kind])
		total += r.faults[kind]
	}
	fmt.Fprintf(w, "  in all\t%d\n", total)
	fmt.Fprintln(w, "\nTIME\tP50\tP99\tMOST")
	for _, l := range r.latencies {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", l.name, l.quantile(0.5), l.quantile(0.99), l.quantile(1))
	}
	fmt.Fprintln(w, "\nRULE\tCHECKED\tVIOLATIONS")
	for _, rule := range check.Rules {
		fmt.Fprintf(w, "  %s\t%d\t%d\n", rule, r.result.Checked[rule], r.result.Count(rule))
	}
	_ = w.Flush()
	for i, v := range r.result.Violations {
		if i == most {
			fmt.Fprintf(out, "… and %d more\n", len(r.result.Violations)-most)
			break
		}
		fmt.Fprintln(out, v)
	}
}

func (l latency) quantile(q float64) time.Duration {
	if len(l.samples) == 0 {
		return 0
	}
	slices.SortFunc(l.samples, cmp.Compare[time.Duration])
	return l.samples[min(int(q*float64(len(l.samples))), len(l.samples)-1)].Round(time.Millisecond)
}
