package check

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
)

var begin = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func second(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }

// one adds a process that had an attempt with one pod after the other, each of a second, and ended in state.
func (in *Input) one(p plan.Process, state string) {
	p.Lines = 3
	version, attempt, cluster := "v-"+p.Name, "a-"+p.Name, in.Clusters["c1"]
	pods := p.Pods()
	end := second(2 + pods)
	w := Wanted{Process: p, Key: "key-" + p.Name, Version: version, Accepted: begin, Cancelled: state == "cancelled"}
	a := Attempt{
		ID: attempt, Version: version, Number: 1, State: state, Cluster: "c1", Job: "job-" + p.Name, UID: "uid-" + p.Name,
		LogsStored: true, Created: begin, JobAt: second(1), Ended: end,
	}
	j := &Job{Name: a.Job, UID: a.UID, Attempt: attempt, Created: second(1), Deletes: []Delete{{At: end.Add(time.Second), User: "admin", UID: a.UID}}}
	switch state {
	case "succeeded":
		j.Complete = end
	case "failed":
		j.Failed = end
	case "cancelled":
		a.CancelRequested = second(1)
		j.Deletes[0].At = second(1)
	}
	log := Log{Manifest: true}
	for n := 1; n <= pods; n++ {
		pod := &Pod{Name: a.Job + string(rune('0'+n)), Attempt: attempt, Created: second(n), Running: second(n), Over: second(n + 1)}
		pod.UID = pod.Name
		cluster.Pods[pod.UID] = pod
		note, text := Note{Pod: pod.Name, Begin: true}, ""
		code, lines := p.Code, p.Lines
		if n > p.Failing {
			code = 0
		}
		if note.Exit = &code; state == "cancelled" {
			lines = 2
			note.Exit, note.Term = nil, &lines
		}
		for i := 1; i <= lines; i++ {
			text += p.Line(n, i) + "\n"
		}
		in.Notes[attempt] = append(in.Notes[attempt], note)
		log.Pods = append(log.Pods, PodLog{Pod: pod.Name, Started: true, Complete: true, Bytes: int64(len(text)), Text: []byte(text)})
	}
	if code := p.ExitCode(); state != "cancelled" {
		a.ExitCode = &code
	}
	in.Wanted = append(in.Wanted, w)
	in.Versions = append(in.Versions, Version{ID: version, Key: w.Key, State: state, Attempt: attempt})
	in.Attempts = append(in.Attempts, a)
	in.Changes = append(in.Changes, Change{Seq: int64(len(in.Changes) + 1), Attempt: attempt, State: state})
	in.Logs[attempt] = log
	cluster.Jobs[j.UID] = j
}

// honest is evidence in which nothing is wrong.
func honest() *Input {
	in := &Input{
		Clusters: map[string]*Cluster{}, Logs: map[string]Log{}, Notes: map[string][]Note{}, GPU: "c2",
	}
	for _, id := range []string{"c1", "c2"} {
		in.Clusters[id] = &Cluster{Name: id, Jobs: map[string]*Job{}, Pods: map[string]*Pod{}}
	}
	in.one(plan.Process{Name: "good"}, "succeeded")
	in.one(plan.Process{Name: "bad", Failing: 1, Code: 7}, "failed")
	in.one(plan.Process{Name: "again", Failing: 1, Code: 7, Retries: 1}, "succeeded")
	in.one(plan.Process{Name: "stop", CancelAfter: time.Second}, "cancelled")
	return in
}

func (in *Input) attempt(name string) *Attempt {
	for i := range in.Attempts {
		if in.Attempts[i].ID == "a-"+name {
			return &in.Attempts[i]
		}
	}
	return nil
}

func (in *Input) job(name string) *Job { return in.Clusters["c1"].Jobs["uid-"+name] }
func (in *Input) pod(name string) *Pod { return in.Clusters["c1"].Pods["job-"+name] }

// edit changes the log of the first pod, in the archive and in the manifest.
func (in *Input) edit(name string, change func(*PodLog)) {
	p := &in.Logs["a-"+name].Pods[0]
	change(p)
	p.Bytes = int64(len(p.Text))
}

func TestHonestEvidenceIsClean(t *testing.T) {
	r := Check(*honest())
	for _, v := range r.Violations {
		t.Error(v)
	}
	for _, rule := range Rules {
		if r.Checked[rule] == 0 {
			t.Errorf("nothing was held against %q", rule)
		}
	}
}

// What a server must never do, one thing at a time: the checker finds it, under its rule.
func TestEveryBreachIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		rule   Rule
		damage func(in *Input)
	}{
		"version lost":       {NothingLost, func(in *Input) { in.Versions = in.Versions[1:] }},
		"attempt lost":       {NothingLost, func(in *Input) { in.Attempts = in.Attempts[1:] }},
		"key stored twice":   {NothingDoubled, func(in *Input) { in.Versions = append(in.Versions, Version{ID: "x", Key: "key-good"}) }},
		"key answered twice": {NothingDoubled, func(in *Input) { in.Wanted[0].Doubles = []string{"x"} }},
		"version of nobody":  {NothingDoubled, func(in *Input) { in.Versions = append(in.Versions, Version{ID: "x", Key: "?"}) }},
		"mutant: a second Job": {NothingDoubled, func(in *Input) {
			in.Clusters["c2"].Jobs["2"] = &Job{Name: "job-good-2", UID: "2", Attempt: "a-good", Created: second(2)}
		}},
		"two pods at a time": {NothingDoubled, func(in *Input) { in.pod("again2").Created = second(1).Add(time.Millisecond) }},
		"a pod too many": {NothingDoubled, func(in *Input) {
			in.Clusters["c1"].Pods["x"] = &Pod{Name: "x", Attempt: "a-good", Created: second(2), Over: second(3)}
		}},
		"attempts overlap": {NothingDoubled, func(in *Input) {
			next := *in.attempt("good")
			next.ID, next.Number, next.Job, next.UID = "a-next", 2, "next", "next"
			in.Attempts = append(in.Attempts, next)
			in.Clusters["c1"].Jobs["next"] = &Job{Name: "next", UID: "next", Attempt: "a-next", Created: second(2)}
		}},
		"Job without attempt":     {NoOrphan, func(in *Input) { in.Clusters["c2"].Jobs["2"] = &Job{Name: "x", UID: "2", Attempt: "?"} }},
		"Job on another cluster":  {NoOrphan, func(in *Input) { in.attempt("good").Cluster = "c2" }},
		"Job with another UID":    {NoOrphan, func(in *Input) { in.attempt("good").UID = "x" }},
		"pod nobody knows":        {NoOrphan, func(in *Input) { in.Notes["a-good"] = append(in.Notes["a-good"], Note{Pod: "x", Begin: true}) }},
		"cancelled and runs":      {CancelledIsGone, func(in *Input) { in.pod("stop1").Alive = true }},
		"cancelled before it was": {CancelledIsGone, func(in *Input) { in.pod("stop1").Over = second(9) }},
		"cancelled, Job there":    {CancelledIsGone, func(in *Input) { in.job("stop").Live = true }},
		"Job after the end":       {CancelledIsGone, func(in *Input) { in.job("stop").Created = second(9) }},
		"succeeded of itself":     {StateTrue, func(in *Input) { in.job("good").Complete = time.Time{} }},
		"failed of itself":        {StateTrue, func(in *Input) { in.job("bad").Failed = time.Time{} }},
		"wrong exit code":         {StateTrue, func(in *Input) { *in.attempt("bad").ExitCode = 8 }},
		"no exit code":            {StateTrue, func(in *Input) { in.attempt("bad").ExitCode = nil }},
		"success that failed": {StateTrue, func(in *Input) {
			in.attempt("bad").State, in.job("bad").Complete, in.job("bad").Failed = "succeeded", second(3), time.Time{}
		}},
		"cancelled by nobody":     {StateTrue, func(in *Input) { in.attempt("stop").CancelRequested = time.Time{} }},
		"cancelled after success": {StateTrue, func(in *Input) { in.job("stop").Complete = second(0) }},
		"unknown":                 {StateTrue, func(in *Input) { in.attempt("good").State = "unknown" }},
		"not ended":               {StateTrue, func(in *Input) { in.attempt("good").State = "running" }},
		"version says otherwise":  {StateTrue, func(in *Input) { in.Versions[0].State = "running" }},
		"GPU elsewhere":           {StateTrue, func(in *Input) { in.Wanted[0].GPUs = 1 }},
		"changed after the end":   {StateFinal, func(in *Input) { in.Changes = append(in.Changes, Change{9, begin, "a-good", "failed"}) }},
		"ended without a time":    {StateFinal, func(in *Input) { in.attempt("good").Ended = time.Time{} }},
		"deleted early":           {DeletedByRight, func(in *Input) { in.job("good").Deletes[0].At = second(1) }},
		"deleted by name":         {DeletedByRight, func(in *Input) { in.job("good").Deletes[0].UID = "" }},
		"log not stored":          {LogComplete, func(in *Input) { in.attempt("good").LogsStored = false }},
		"no manifest":             {LogComplete, func(in *Input) { in.Logs["a-good"] = Log{} }},
		"log of a pod missing":    {LogComplete, func(in *Input) { in.Logs["a-again"] = Log{Manifest: true, Pods: in.Logs["a-again"].Pods[:1]} }},
		"mutant: a lost line": {LogComplete, func(in *Input) {
			in.edit("good", func(p *PodLog) { p.Text = append(p.Text[:0], p.Text[len(p.Text)/3:]...) })
		}},
		"last line lost": {LogComplete, func(in *Input) { in.edit("good", func(p *PodLog) { p.Text = p.Text[:len(p.Text)/3*2] }) }},
		"line twice": {LogComplete, func(in *Input) {
			in.edit("good", func(p *PodLog) { p.Text = append(p.Text, p.Text[len(p.Text)/3*2:]...) })
		}},
		"line cut": {LogComplete, func(in *Input) { in.edit("good", func(p *PodLog) { p.Text = p.Text[:len(p.Text)-2] }) }},
		"gap in the log": {LogComplete, func(in *Input) {
			in.edit("good", func(p *PodLog) { p.Gaps = []string{"timeout"}; p.Text = append(p.Text, "[nagelfluh] x\n"...) })
		}},
		"gap not marked":    {LogComplete, func(in *Input) { in.edit("stop", func(p *PodLog) { p.Gaps = []string{"pod-gone"} }) }},
		"stopped, unmarked": {LogComplete, func(in *Input) { in.edit("stop", func(p *PodLog) { p.Text = p.Text[:len(p.Text)/2] }) }},
		"size is wrong":     {LogComplete, func(in *Input) { in.Logs["a-good"].Pods[0].Bytes++ }},
		"panic":             {NoTrouble, func(in *Input) { in.Trouble = []string{"panic: x"} }},
	} {
		t.Run(name, func(t *testing.T) {
			in := honest()
			c.damage(in)
			r := Check(*in)
			if r.Count(c.rule) == 0 {
				t.Errorf("not found under %q; found: %v", c.rule, r.Violations)
			}
		})
	}
}

// The log of an attempt whose cancel was asked for may lack its end when it says so, also when it was quicker than the cancel.
func TestMarkedGapOfCancelledIsHonest(t *testing.T) {
	in := honest()
	in.attempt("good").CancelRequested = second(1)
	for _, name := range []string{"stop", "good"} {
		in.edit(name, func(p *PodLog) {
			lines := bytes.SplitAfter(p.Text, []byte("\n"))
			p.Text = append(bytes.Clone(lines[0]), "[nagelfluh] The pod was removed.\n"...)
			p.Gaps, p.Complete = []string{"pod-gone"}, false
		})
	}
	for _, v := range Check(*in).Violations {
		t.Error(v)
	}
}

// A pod that was cancelled before it began, and gone before the server looked again, may have a mark and nothing else.
func TestMarkOfAPodThatNeverBegan(t *testing.T) {
	for text, fine := range map[string]bool{"[nagelfluh] The pod was gone.\n": true, "[nagelfluh] The pod was gone.\nline\n": false, "line\n": false} {
		in := honest()
		for i := range in.Notes["a-stop"] {
			in.Notes["a-stop"][i] = Note{Pod: in.Notes["a-stop"][i].Pod}
		}
		in.edit("stop", func(p *PodLog) { p.Text, p.Gaps, p.Complete = []byte(text), []string{"pod-gone"}, false })
		if n := Check(*in).Count(LogComplete); (n == 0) != fine {
			t.Errorf("%q: %d violations of %s", text, n, LogComplete)
		}
	}
}

func TestViolationSaysWhatAndWho(t *testing.T) {
	in := honest()
	in.attempt("bad").ExitCode = nil
	got := Check(*in).Violations[0].String()
	for _, part := range []string{string(StateTrue), "bad", "a-bad", "exit code is none"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
}
