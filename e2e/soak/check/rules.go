package check

import (
	"strings"
	"time"
)

// lost: every accepted submission is one version with an attempt that has ended, and there are no others.
func (c *checker) lost() {
	byKey := map[string][]string{}
	for _, v := range c.Versions {
		byKey[v.Key] = append(byKey[v.Key], v.ID)
	}
	for _, w := range c.Wanted {
		c.look(NothingLost)
		who := Attempt{Version: w.Version}
		v, there := c.versions[w.Version]
		attempts := c.of[w.Version]
		switch {
		case !there:
			c.bad(NothingLost, who, "version %s was accepted and is not stored", w.Version)
		case len(attempts) == 0:
			c.bad(NothingLost, who, "version %s has no attempt", w.Version)
		default:
			if last := attempts[len(attempts)-1]; last.ID != v.Attempt || last.State != v.State {
				c.bad(StateTrue, last, "the version is %s by attempt %s, its last attempt is %s", v.State, v.Attempt, last.State)
			}
		}
		if all := byKey[w.Key]; len(all) > 1 || len(w.Doubles) > 0 {
			c.bad(NothingDoubled, who, "key %s was answered with %v and is stored as %v", w.Key, append(w.Doubles, w.Version), all)
		}
		delete(byKey, w.Key)
	}
	for key, ids := range byKey {
		c.bad(NothingDoubled, Attempt{}, "versions %v with key %q were submitted by nobody", ids, key)
	}
}

// doubled: an attempt has one Job at most and never two pods at a time; attempts of a version never overlap.
func (c *checker) doubled(a Attempt) {
	c.look(NothingDoubled)
	if jobs := c.jobs[a.ID]; len(jobs) > 1 {
		var names []string
		for _, j := range jobs {
			names = append(names, j.Name+" "+j.UID+" at "+clock(j.Created))
		}
		c.bad(NothingDoubled, a, "it had %d Jobs: %s", len(jobs), strings.Join(names, ", "))
	}
	pods := c.pods[a.ID]
	for i := 1; i < len(pods); i++ {
		if before := pods[i-1]; before.Over.IsZero() || pods[i].Created.Before(before.Over) {
			c.bad(NothingDoubled, a, "pod %s was made at %s, pod %s was over at %s", pods[i].Name, clock(pods[i].Created), before.Name, clock(before.Over))
		}
	}
	if w := c.wanted[a.Version]; w != nil && len(pods) > w.Retries+1 {
		c.bad(NothingDoubled, a, "%d pods with %d retries", len(pods), w.Retries)
	}
	for _, before := range c.of[a.Version] {
		if before.Number != a.Number-1 {
			continue
		}
		for _, j := range c.jobs[a.ID] {
			if before.Ended.IsZero() || j.Created.Before(before.Ended) {
				c.bad(NothingDoubled, a, "its Job was made at %s, the attempt before ended at %s", clock(j.Created), clock(before.Ended))
			}
		}
	}
}

// orphans: every Job that ever was is the one that its attempt names, on the cluster that it names, and the other way.
func (c *checker) orphans() {
	for id, cluster := range c.Clusters {
		for _, j := range cluster.Jobs {
			c.look(NoOrphan)
			a, there := c.attempts[j.Attempt]
			switch {
			case !there:
				c.bad(NoOrphan, Attempt{ID: j.Attempt}, "Job %s on %s, made at %s, has no attempt", j.Name, cluster.Name, clock(j.Created))
			case a.UID != j.UID || a.Job != j.Name || a.Cluster != id:
				c.bad(NoOrphan, a, "Job %s %s on %s is not that of the attempt: %q %q on cluster %q", j.Name, j.UID, cluster.Name, a.Job, a.UID, a.Cluster)
			}
		}
	}
	for _, a := range c.Attempts {
		if a.UID != "" && (c.Clusters[a.Cluster] == nil || c.Clusters[a.Cluster].Jobs[a.UID] == nil) {
			c.bad(NoOrphan, a, "its Job %s %s was never made on cluster %q", a.Job, a.UID, a.Cluster)
		}
	}
}

// gone: when an attempt has ended nothing of it runs, and nothing of it begins later.
func (c *checker) gone(a Attempt) {
	if a.Ended.IsZero() {
		return
	}
	c.look(CancelledIsGone)
	ended := a.Ended
	for _, j := range c.jobs[a.ID] {
		// The end that a Job came to by itself is told in whole seconds; the log of the cluster knows better.
		for _, over := range []time.Time{j.Complete, j.Failed} {
			if j.UID == a.UID && a.State != "cancelled" && over.After(ended) {
				ended = over
			}
		}
	}
	a.Ended = ended
	for _, j := range c.jobs[a.ID] {
		if j.Created.After(a.Ended) {
			c.bad(CancelledIsGone, a, "%s since %s, Job %s was made at %s", a.State, clock(a.Ended), j.Name, clock(j.Created))
		}
		if a.State == "cancelled" && j.Live {
			c.bad(CancelledIsGone, a, "cancelled, and Job %s is still there", j.Name)
		}
	}
	for _, p := range c.pods[a.ID] {
		switch {
		case p.Alive:
			c.bad(CancelledIsGone, a, "%s since %s, and pod %s is still there", a.State, clock(a.Ended), p.Name)
		case p.Over.IsZero() || p.Over.After(a.Ended):
			c.bad(CancelledIsGone, a, "%s since %s, pod %s was over at %s", a.State, clock(a.Ended), p.Name, clock(p.Over))
		case p.Created.After(a.Ended):
			c.bad(CancelledIsGone, a, "%s since %s, pod %s was made at %s", a.State, clock(a.Ended), p.Name, clock(p.Created))
		}
	}
}

// final: nothing follows a terminal state, and the last state told is the one that is stored.
func (c *checker) final() {
	last := map[string]Change{}
	for _, e := range c.Changes {
		if before := last[e.Attempt]; Terminal(before.State) && e.State != before.State {
			c.bad(StateFinal, c.attempts[e.Attempt], "%s (event %d) became %s (event %d)", before.State, before.Seq, e.State, e.Seq)
		}
		last[e.Attempt] = e
	}
	for _, a := range c.Attempts {
		c.look(StateFinal)
		if e := last[a.ID]; e.State != a.State {
			c.bad(StateFinal, a, "it is %s, the last event says %q", a.State, e.State)
		}
		if Terminal(a.State) == a.Ended.IsZero() {
			c.bad(StateFinal, a, "it is %s and ended at %q", a.State, clock(a.Ended))
		}
	}
}

// deleted: nobody but the server deletes Jobs here, and it does by UID, after the end or because it was asked to.
func (c *checker) deleted(a Attempt) {
	for _, j := range c.jobs[a.ID] {
		for _, d := range j.Deletes {
			if strings.HasPrefix(d.User, "system:") {
				continue // the garbage collector carries out what was asked for
			}
			c.look(DeletedByRight)
			asked := !a.CancelRequested.IsZero() && !d.At.Before(a.CancelRequested)
			over := !a.Ended.IsZero() && !d.At.Before(a.Ended)
			if d.UID != j.UID || !asked && !over {
				c.bad(DeletedByRight, a, "Job %s was deleted at %s by %s with precondition %q; cancel %q, end %q",
					j.Name, clock(d.At), d.User, d.UID, clock(a.CancelRequested), clock(a.Ended))
			}
		}
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05.000")
}
