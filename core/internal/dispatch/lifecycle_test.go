package dispatch

import (
	"slices"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestAttemptRunsToItsEnd(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	queued := r.state(v, process.Queued)
	if j := a.only(); string(j.UID) != queued.JobUID || j.Name != queued.JobName || j.Namespace != "jobs" {
		t.Fatalf("the row pins %s %s, the Job is %s %s", queued.JobName, queued.JobUID, j.Name, j.UID)
	}
	if q := a.posts[0].URL.Query().Get("timeout"); q != "400ms" {
		t.Errorf("timeout parameter %q, want 400ms", q)
	}
	owner := a.only().Labels
	a.pod(owner, running)
	r.state(v, process.Running)
	a.pod(owner, exited(0))
	a.change(completed)
	end := r.state(v, process.Succeeded)
	if end.ExitCode == nil || *end.ExitCode != 0 || end.Runs != 1 || end.StartedAt == nil || end.EndedAt == nil {
		t.Errorf("end: %+v", end)
	}
	if got, want := r.history(v), []string{"creating", "queued", "running", "succeeded"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	r.until(v, "logs stored", func(a process.Attempt) bool { return a.LogsStored })
	if n := a.posted(); n != 1 {
		t.Errorf("%d create requests, want 1", n)
	}
}

func TestStartAndEndBetweenTwoLooksAreBothRecorded(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("a", a)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	r.stop()
	a.pod(a.only().Labels, exited(3))
	a.change(failedJob)
	r.start()
	end := r.state(v, process.Failed)
	if end.ExitCode == nil || *end.ExitCode != 3 || end.StartedAt == nil || end.Runs != 1 {
		t.Errorf("end: %+v", end)
	}
	if len(r.events("run-started")) != 1 {
		t.Error("the start is not among the events")
	}
}
