// Package evidence reads the state of an attempt from the objects of its cluster. It is pure: the same objects and the
// same last known row give the same finding, however often and in whatever order they are read.
package evidence

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Input is what is known of one attempt.
type Input struct {
	Job  *batchv1.Job  // required
	Pods []*corev1.Pod // of the attempt, in any order
	// Gone are the last states of pods that were removed, in any order; those that had not ended say nothing.
	Gone []*corev1.Pod
	// Events of the Job, in any order; nil: not read. Only a Job without pods needs them.
	Events []corev1.Event
	// Queue is what Kueue says; nil: not read. Only a suspended Job with a queue needs it.
	Queue *Queue
	// Cluster is the cluster's name, for sentences.
	Cluster string
	// Now is the present; only the running time of pods that are gone depends on it.
	Now time.Time
	// Attempt is the last known row.
	Attempt process.Attempt
}

// Finding is what the objects say. State is one of queued, running, succeeded and failed.
type Finding struct {
	State      process.State
	ReasonCode string // one of the constants of this package
	Reason     string // a sentence for people
	// ExitCode is that of the main container of the last pod that ended; nil: none ended or it is not known.
	ExitCode *int32
	// StartedAt is when a container first ran; nil: none did.
	StartedAt *time.Time
	// EndedAt is when the Job ended, by the cluster's clock; nil while it has not.
	EndedAt *time.Time
	// Runs counts the stretches of pods; it never falls below the last known figure.
	Runs int32
	// NeedsEvents says that the Job has no pod and no event was given: reading them may tell why.
	NeedsEvents bool
	// NeedsQueue says the same of a suspended Job and its queue.
	NeedsQueue bool
	// Ran, RunStartedAt and RunEnded account for running time as in process.Attempt.
	Ran          time.Duration
	RunStartedAt *time.Time
	RunEnded     bool
}

// Blocked names the start limit whose clock runs while the finding lasts; empty: none.
func (f Finding) Blocked() string {
	if f.State != process.Queued {
		return ""
	}
	return limits[f.ReasonCode]
}

// Read returns what the objects say. Only a condition Complete or Failed ends the attempt: SuccessCriteriaMet and
// FailureTarget announce an end that pods may still be working on.
func Read(in Input) Finding {
	pods := slices.Clone(in.Pods)
	slices.SortFunc(pods, oldestFirst)
	all := withGone(pods, in.Gone)
	f := Finding{
		StartedAt: startedAt(all, in.Attempt.StartedAt),
		ExitCode:  exitCode(all, in.Attempt.ExitCode),
		Runs:      in.Attempt.Runs,
	}
	switch {
	case condition(in.Job, batchv1.JobComplete) != nil:
		succeeded(&f, in.Job)
	case condition(in.Job, batchv1.JobFailed) != nil:
		failed(&f, in.Job, all)
	default:
		live(&f, in, pods)
	}
	f.Runs = runs(f, in, pods)
	account(&f, in, all)
	return f
}

func succeeded(f *Finding, j *batchv1.Job) {
	f.State, f.ReasonCode, f.Reason = process.Succeeded, Completed, "The work has ended well."
	if f.ExitCode == nil || *f.ExitCode != 0 {
		f.ExitCode = new(int32(0)) // a Job is complete only when its pod ended with 0
	}
	end := condition(j, batchv1.JobComplete).LastTransitionTime.Time
	if j.Status.CompletionTime != nil {
		end = j.Status.CompletionTime.Time
	}
	f.EndedAt = utc(end)
}

func failed(f *Finding, j *batchv1.Job, pods []*corev1.Pod) {
	c := condition(j, batchv1.JobFailed)
	f.State = process.Failed
	f.EndedAt = utc(c.LastTransitionTime.Time)
	f.ReasonCode, f.Reason = failure(c, lastEnded(pods), f.ExitCode)
}

// runs counts stretches of pods. The Job's own counters say how many pods its retries made; a change into running says
// that a new stretch began, which is all that remains of a preempted one.
func runs(f Finding, in Input, pods []*corev1.Pod) int32 {
	last := in.Attempt.Runs
	if f.State == process.Running && in.Attempt.State != process.Running && in.Attempt.State != process.Cancelling {
		last++
	}
	seen := in.Job.Status.Failed + in.Job.Status.Succeeded
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && mainStarted(p) }) {
		seen++
	}
	if f.StartedAt == nil {
		seen = 0 // pods that never ran a container are no runs
	}
	return max(last, seen)
}

func condition(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// withDetail joins a cause and what the cluster says of it into one sentence.
func withDetail(cause, detail string) string {
	if detail == "" {
		return cause + "."
	}
	return cause + ": " + detail
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Truncate(time.Microsecond))
}
