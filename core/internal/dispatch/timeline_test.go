package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

var varying = regexp.MustCompile(`https?://\S+|since \S+Z|after \d+s|(work-)[0-9a-z-]+|: \S+ "\S+".*$`)

// timeline is the list of a version's events as text: who, what, state before and after, run, and the sentence without
// what differs from time to time.
func (r *rig) timeline(v process.Version) string {
	r.t.Helper()
	events, err := r.db.Events(r.t.Context(), store.EventFilter{VersionID: v.ID, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range events {
		var d struct {
			event.Facts
			Run   int    `json:"run"`
			Since string `json:"since"`
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			r.t.Fatalf("%s: %v", e.Data, err)
		}
		if (e.Kind == event.Unreachable || e.Kind == event.Reachable) != (d.Since != "") {
			r.t.Errorf("%s with since %q", e.Kind, d.Since)
		}
		who := e.Actor
		if who == r.user {
			who = "ada"
		}
		what := string(e.Kind)
		if d.Was != "" {
			what += " " + d.Was + " to"
		}
		what += " " + e.State
		if d.ReasonCode != "" {
			what += " (" + d.ReasonCode + ")"
		}
		if d.ExitCode != nil {
			what += fmt.Sprintf(" exit code %d", *d.ExitCode)
		}
		if d.Run != 0 {
			what += fmt.Sprintf(" run %d", d.Run)
		}
		fmt.Fprintf(&b, "%d %s: %s | %s\n", d.Attempt, who, what, varying.ReplaceAllString(e.Message, "$1…"))
	}
	return b.String()
}

// One job is preempted, runs again, is out of reach, is asked to stop meanwhile, and ends: every step is told, in order.
func TestTimelineIsWhole(t *testing.T) {
	r, a, v := runningJob(t)
	suspend := func(yes bool) {
		a.change(func(j *batchv1.Job) { j.Spec.Suspend = &yes })
	}
	owner := a.only().Labels
	suspend(true)
	a.dropPod()
	r.until(v, "preemption", func(a process.Attempt) bool { return a.ReasonCode == "preempted" })
	a.pod(owner, running)
	suspend(false)
	r.until(v, "the second run", func(a process.Attempt) bool { return a.State == process.Running && a.Runs == 2 })

	var down atomic.Bool
	down.Store(true)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if down.Load() {
			hangUp(w)
			return
		}
		next(w, q)
	})
	r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
	r.cancel(v)
	r.until(v, "the reason", func(a process.Attempt) bool { return a.ReasonCode == reasonUnreachable })
	down.Store(false)
	r.when("the delete", func() bool { return a.count() == 0 }, nil)
	a.dropPod()
	r.state(v, process.Cancelled)

	want := strings.TrimLeft(`
1 ada: submitted placing | Submitted
1 system: decided creating (placed) | Placed by default.
1 system: state placing to creating (placed) | Placed by default.
1 system: state creating to queued (no-pod) | The Job exists; its pod does not yet.
1 system: run-started running run 1 | Run 1 started.
1 system: state queued to running (running) | Running on node node-1.
1 system: state running to queued (preempted) | The Job was suspended after it had run; it waits to be resumed.
1 system: run-started running run 2 | Run 2 started.
1 system: state queued to running (running) | Running on node node-1.
1 system: unreachable running | Cluster "a" does not answer…
1 ada: cancel-requested cancelling | Cancel requested
1 ada: state running to cancelling (cancel-requested) | A stop was asked for; the cluster has not confirmed it yet
1 system: reason cancelling (cluster-unreachable) | Cancel requested; cluster "a" has been unreachable …. It is carried out when the cluster returns.
1 system: reachable cancelling | Cluster "a" answers again, ….
1 system: state cancelling to cancelled (cancelled) | Cancelled.
`, "\n")
	// The order in which the watches of Jobs and pods show things decides over further reasons of one and the same state.
	got := regexp.MustCompile(`(?m)^.*: reason \S+ \((stopping|preempted)\).*\n`).ReplaceAllString(r.timeline(v), "")
	// Likewise over the first of them.
	got = strings.Replace(got, "The pod is gone before it ended; a new one follows.", "The Job was suspended after it had run; it waits to be resumed.", 1)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s\nall of it:\n%s", d, r.timeline(v))
	}
}

func TestTimelineTellsOfEveryRunAndOfTheEnd(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	r.stop() // what happens now is seen only afterwards
	a.pod(a.only().Labels, exited(3))
	a.change(func(j *batchv1.Job) {
		failedJob(j)
		j.Status.Failed = 2
	})
	r.start()
	r.state(v, process.Failed)
	want := strings.TrimLeft(`
1 ada: submitted placing | Submitted
1 system: decided creating (placed) | Placed by default.
1 system: state placing to creating (placed) | Placed by default.
1 system: state creating to queued (no-pod) | The Job exists; its pod does not yet.
1 system: run-started failed run 1 | Run 1 started.
1 system: run-started failed run 2 | Run 2 started.
1 system: state queued to failed (exit-code) exit code 3 | The work ended with exit code 3.
`, "\n")
	if d := cmp.Diff(want, r.timeline(v)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
