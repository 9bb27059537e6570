package placement

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Reason codes of decisions.
const (
	CodeRequested      = "requested"
	CodeSelected       = "selected"
	CodeHome           = "home-cluster"
	CodeDefault        = "default-cluster"
	CodeRefused        = "refused"
	CodePluginError    = "plugin-error"
	CodeNotCandidate   = "not-a-candidate"
	CodeNoDefault      = "no-default-cluster"
	CodeOverruled      = "overruled"
	CodeUnknownCluster = "unknown-cluster"
)

// decide runs the chain over one view. It never fails: what went wrong is in the decision.
func (e *Engine) decide(ctx context.Context, v *view, r Request) Decision {
	d := Decision{}
	snap, stop := e.restrict(ctx, v, r.User, r.Project, &d)
	d.Candidates = v.all
	if stop {
		return d
	}
	requested := r.Version.Spec.Cluster
	if requested != "" && !e.o.Binding {
		d.settle(v, ByRequest, "", requested, CodeRequested, "the submission asks for it")
		return d
	}
	if e.ask(ctx, snap, r, &d) {
		if requested != "" && d.Outcome == Placed && d.ClusterID != requested {
			d.Outcome, d.ReasonCode = Fail, CodeOverruled
			d.Reason = fmt.Sprintf("the submission asks for cluster %q, but selector %s says %q (%s), and selectors are binding here: submit without a cluster",
				v.name(requested), d.Plugin, v.name(d.ClusterID), d.Reason)
			d.ClusterID = ""
		}
		return d
	}
	switch {
	case requested != "":
		d.settle(v, ByRequest, "", requested, CodeRequested, "the submission asks for it, and no selector objects")
	case r.Project.HomeCluster != "":
		d.settle(v, ByHome, "", r.Project.HomeCluster, CodeHome, fmt.Sprintf("home cluster of project %q", r.Project.Name))
	case v.defaultID != "":
		d.settle(v, ByDefault, "", v.defaultID, CodeDefault, "no selector has an opinion; this is the default cluster")
	default:
		d.Outcome, d.ReasonCode = Wait, CodeNoDefault
		d.Reason = "no selector has an opinion and no default cluster is set: set one with `nagelfluh clusters default`"
	}
	return d
}

func (v *view) name(id string) string {
	if c := v.find(id); c != nil {
		return c.Name
	}
	return id
}

// settle takes one cluster if it is a candidate; otherwise the attempt waits and goes nowhere else.
func (d *Decision) settle(v *view, rule Rule, plugin, id, code, reason string) {
	d.Rule, d.Plugin = rule, plugin
	c := v.find(id)
	switch {
	case c == nil:
		d.Outcome, d.ReasonCode = Wait, CodeUnknownCluster
		d.Reason = fmt.Sprintf("cluster %q (%s) does not exist", id, rule)
	case c.Excluded != "":
		d.Outcome, d.ReasonCode = Wait, CodeNotCandidate
		d.Reason = fmt.Sprintf("cluster %q (%s) takes no jobs now: %s", c.Name, rule, c.Excluded)
	default:
		d.Outcome, d.ClusterID, d.ReasonCode, d.Reason = Placed, id, code, reason
	}
}

// failed handles an error of a selector under its failure policy and says whether the chain ends.
func (d *Decision) failed(s Selector, a Asked, err error) (stop bool) {
	a.Kind, a.Reason, a.Ignored = Failed, err.Error(), s.IgnoreErrors()
	d.Asked = append(d.Asked, a)
	if a.Ignored {
		return false
	}
	d.Outcome, d.Plugin, d.ReasonCode, d.Reason = Retry, s.Name(), CodePluginError, err.Error()
	return true
}

// restrict asks SelectClusters, marks what the answer leaves out, and returns the candidates. stop says that the
// decision is made: an error refuses.
func (e *Engine) restrict(ctx context.Context, v *view, u User, p Project, d *Decision) (snap *Snapshot, stop bool) {
	snap = &Snapshot{Candidates: v.eligible(), Ineligible: v.ineligible()}
	for _, s := range e.o.Selectors() {
		if !s.Hooks().SelectClusters {
			continue
		}
		began := time.Now()
		c, err := s.SelectClusters(ctx, snap, u, p)
		a := Asked{Plugin: s.Name(), Hook: "select_clusters", Took: time.Since(began)}
		if err == nil && !c.Abstained {
			err = checkChoice(s, snap, c.Clusters)
		}
		if err != nil {
			if d.failed(s, a, err) {
				return snap, true
			}
			continue
		}
		a.Kind, a.Reason, a.Clusters = Selected, c.Reason, c.Clusters
		if c.Abstained {
			a.Kind = Abstained
			d.Asked = append(d.Asked, a)
			continue
		}
		d.Asked = append(d.Asked, a)
		return v.narrow(snap, c.Clusters, s.Name(), u), false
	}
	return snap, false
}

func checkChoice(s Selector, snap *Snapshot, ids []string) error {
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			return fmt.Errorf("selector(%s): names cluster %q twice", s.Name(), id)
		}
		seen[id] = true
		if !snap.has(id) {
			return fmt.Errorf("selector(%s): names cluster %q, which is not among the candidates", s.Name(), id)
		}
	}
	return nil
}

func (s *Snapshot) has(id string) bool {
	return slices.ContainsFunc(s.Candidates, func(c Candidate) bool { return c.ID == id })
}

// narrow keeps the clusters of the answer, in its order, and marks the others.
func (v *view) narrow(snap *Snapshot, ids []string, plugin string, u User) *Snapshot {
	out := &Snapshot{}
	for _, id := range ids {
		i := slices.IndexFunc(snap.Candidates, func(c Candidate) bool { return c.ID == id })
		out.Candidates = append(out.Candidates, snap.Candidates[i])
	}
	for i := range v.all {
		if v.all[i].Excluded == "" && !slices.Contains(ids, v.all[i].ID) {
			v.all[i].Excluded = fmt.Sprintf("selector %s does not offer it to user %q", plugin, u.Name)
		}
	}
	return out
}

// ask runs the selectors in order and says whether one of them decided.
func (e *Engine) ask(ctx context.Context, snap *Snapshot, r Request, d *Decision) bool {
	for _, s := range e.o.Selectors() {
		if !s.Hooks().SelectCluster {
			continue
		}
		began := time.Now()
		ans, err := s.SelectCluster(ctx, snap, r)
		a := Asked{Plugin: s.Name(), Hook: "select_cluster", Took: time.Since(began)}
		if err == nil {
			err = checkAnswer(s, snap, ans)
		}
		if err != nil {
			if d.failed(s, a, err) {
				return true
			}
			continue
		}
		a.Kind, a.ClusterID, a.Reason = ans.Kind, ans.ClusterID, ans.Reason
		d.Asked = append(d.Asked, a)
		switch ans.Kind {
		case Selected:
			d.Outcome, d.Rule, d.Plugin = Placed, BySelector, s.Name()
			d.ClusterID, d.ReasonCode, d.Reason = ans.ClusterID, CodeSelected, ans.Reason
			return true
		case Refused:
			d.Outcome, d.Rule, d.Plugin = Wait, BySelector, s.Name()
			if ans.Fail {
				d.Outcome = Fail
			}
			d.ReasonCode, d.Reason = CodeRefused, ans.Reason
			return true
		}
	}
	return false
}

func checkAnswer(s Selector, snap *Snapshot, a Answer) error {
	switch a.Kind {
	case Abstained, Refused:
		return nil
	case Selected:
		if !snap.has(a.ClusterID) {
			return fmt.Errorf("selector(%s): selected cluster %q, which is not among the candidates", s.Name(), a.ClusterID)
		}
		return nil
	}
	return fmt.Errorf("selector(%s): gave no answer of a known kind", s.Name())
}
