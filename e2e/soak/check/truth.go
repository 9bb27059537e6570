package check

import (
	"fmt"
	"time"
)

// truth: what an attempt ended as is what its Job came to at the cluster, what its pods say, and what was submitted.
func (c *checker) truth(a Attempt) {
	c.look(StateTrue)
	w := c.wanted[a.Version]
	if w == nil {
		return // said elsewhere
	}
	var complete, failed, deleted time.Time
	for _, j := range c.jobs[a.ID] {
		if j.UID != a.UID {
			continue
		}
		complete, failed = j.Complete, j.Failed
		if len(j.Deletes) > 0 {
			deleted = j.Deletes[0].At
		}
	}
	say := func(format string, args ...any) {
		c.bad(StateTrue, a, "%s (%s: %s), but %s", a.State, a.Code, a.Reason, fmt.Sprintf(format, args...))
	}
	if w.GPUs > 0 && a.Cluster != "" && a.Cluster != c.GPU {
		say("it wants GPUs and was on cluster %q", a.Cluster)
	}
	switch a.State {
	case "succeeded":
		if complete.IsZero() {
			say("its Job was never complete")
		}
		c.ended(a, w, say)
	case "failed":
		if failed.IsZero() {
			say("its Job never failed")
		}
		c.ended(a, w, say)
	case "cancelled":
		if a.CancelRequested.IsZero() || w.CancelAfter == 0 {
			say("nobody asked for it")
		}
		if over := complete; !over.IsZero() && (deleted.IsZero() || over.Before(deleted)) {
			say("its Job was complete at %s, before it was deleted at %q", clock(over), clock(deleted))
		}
		if over := failed; !over.IsZero() && (deleted.IsZero() || over.Before(deleted)) {
			say("its Job had failed at %s, before it was deleted at %q", clock(over), clock(deleted))
		}
	case "unknown":
		say("nobody removes Jobs or clusters here")
	default:
		say("it should have ended")
	}
}

// ended holds an attempt that came to its own end against its pods and against what was submitted.
func (c *checker) ended(a Attempt, w *Wanted, say func(string, ...any)) {
	if (a.State == "succeeded") != w.Succeeds() {
		say("its command ends with %d after %d pods", w.ExitCode(), w.Pods())
	}
	if a.ExitCode == nil || *a.ExitCode != w.ExitCode() {
		got := "none"
		if a.ExitCode != nil {
			got = fmt.Sprint(*a.ExitCode)
		}
		say("its exit code is %s, the command's is %d", got, w.ExitCode())
	}
	exits := 0
	for _, n := range c.Notes[a.ID] {
		exits += btoi(n.Exit != nil)
	}
	if notes := len(c.Notes[a.ID]); exits != w.Pods() || notes != w.Pods() {
		say("%d pods began and %d came to their end, it takes %d", notes, exits, w.Pods())
	}
}
