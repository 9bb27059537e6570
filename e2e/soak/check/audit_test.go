package check

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// recorded is the audit log of three Jobs of one soak: one that failed, one whose first pod failed, one that was cancelled.
func recorded(t *testing.T, more ...string) *Cluster {
	t.Helper()
	raw, err := os.ReadFile("testdata/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadAudit("main", strings.NewReader(string(raw)+strings.Join(more, "")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Cluster) named(prefix string) (jobs []*Job, pods []*Pod) {
	for _, j := range c.Jobs {
		if strings.HasPrefix(j.Name, prefix) {
			jobs = append(jobs, j)
		}
	}
	for _, p := range c.Pods {
		if strings.HasPrefix(p.Name, prefix) {
			pods = append(pods, p)
		}
	}
	return jobs, pods
}

func TestReadAudit(t *testing.T) {
	c := recorded(t)
	for prefix, want := range map[string]struct {
		pods                        int
		complete, failed, cancelled bool
	}{
		"fails-":     {1, false, true, false},
		"retries-":   {2, true, false, false},
		"cancelled-": {1, false, false, true},
	} {
		jobs, pods := c.named(prefix)
		if len(jobs) != 1 || len(pods) != want.pods {
			t.Errorf("%s: %d Jobs and %d pods, want one and %d", prefix, len(jobs), len(pods), want.pods)
			continue
		}
		j := jobs[0]
		if j.Attempt == "" || j.Created.IsZero() || j.Complete.IsZero() == want.complete || j.Failed.IsZero() == want.failed {
			t.Errorf("%s: %+v", prefix, j)
		}
		if len(j.Deletes) != 1 || j.Deletes[0].UID != j.UID || j.Deletes[0].User != "admin" {
			t.Errorf("%s: deletes %+v, want one by UID", prefix, j.Deletes)
		}
		for _, p := range pods {
			if p.Attempt != j.Attempt || p.Created.Before(j.Created) || !p.Over.After(p.Created) || p.Running.IsZero() {
				t.Errorf("%s: %+v of %+v", prefix, p, j)
			}
			if over := j.Complete; want.complete && p.Over.After(over) {
				t.Errorf("%s: pod %s was over at %v, the Job at %v", prefix, p.Name, p.Over, over)
			}
			if want.cancelled && !p.Over.After(j.Deletes[0].At) {
				t.Errorf("%s: pod %s was over before the delete", prefix, p.Name)
			}
		}
	}
}

// A line that was not finished when the API server was stopped says nothing, and what was refused did not happen.
func TestReadAuditPassesOverWhatDidNotHappen(t *testing.T) {
	before := recorded(t)
	after := recorded(t,
		`{"verb":"create","objectRef":{"resource":"jobs"},"responseStatus":{"code":409},"responseObject":{"kind":"Job","metadata":{"uid":"x"}}}`+"\n",
		`{"verb":"create","objectRef":{"resource":"jobs"},"responseStatus":{"code":201},"responseObject":{"kind":"Job","metadata":{"uid":"y`)
	if len(after.Jobs) != len(before.Jobs) {
		t.Errorf("%d Jobs, want %d", len(after.Jobs), len(before.Jobs))
	}
}

// The mutant on recorded data: the log has one create more, of a Job with the labels of an attempt.
func TestSecondJobInTheAuditLogIsFound(t *testing.T) {
	raw, err := os.ReadFile("testdata/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	input := func(c *Cluster) Input {
		in := Input{Clusters: map[string]*Cluster{"c1": c}}
		for uid, j := range recorded(t).Jobs {
			in.Attempts = append(in.Attempts, Attempt{ID: j.Attempt, Version: j.Attempt, Cluster: "c1", Job: j.Name, UID: uid})
		}
		return in
	}
	doubled := func(c *Cluster) int {
		r := Check(input(c))
		return r.Count(NothingDoubled) + r.Count(NoOrphan)
	}
	if n := doubled(recorded(t)); n != 0 {
		t.Errorf("%d violations in what happened", n)
	}
	first, _, _ := bytes.Cut(raw, []byte("\n"))
	jobs, _ := recorded(t).named("fails-")
	second := strings.ReplaceAll(strings.ReplaceAll(string(first), jobs[0].UID, "another"), jobs[0].Name, jobs[0].Name+"-2")
	if n := doubled(recorded(t, second+"\n")); n != 2 {
		t.Errorf("%d violations with a second Job, want 2: it is doubled, and not the attempt's", n)
	}
}
