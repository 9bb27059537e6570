package evidence

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

// Queue is what Kueue says of a suspended Job.
type Queue struct {
	// Unread: the account may not read it.
	Unread bool
	// Missing: the cluster has no Kueue. NoLocalQueue: the namespace has no queue of the name that the Job carries.
	Missing      bool
	NoLocalQueue bool
	// Workload are the conditions of the Job's Workload; nil: it has none.
	Workload []metav1.Condition
	// Position counts from 1 within the queue; zero: not known.
	Position int32
}

// queueOf names the Kueue queue of a Job; empty: none.
func queueOf(j *batchv1.Job) string { return j.Labels[job.LabelQueue] }

func suspended(f *Finding, in Input) {
	queue := queueOf(in.Job)
	if queue == "" {
		f.ReasonCode, f.Reason = Suspended, "The Job is suspended; it waits to be resumed."
		if f.StartedAt != nil {
			f.ReasonCode, f.Reason = Preempted, "The Job was suspended after it had run; it waits to be resumed."
		}
		return
	}
	f.NeedsQueue = in.Queue == nil
	if q := in.Queue; q != nil && !q.Unread {
		f.ReasonCode, f.Reason = queued(*q, queue, in)
	} else {
		f.ReasonCode, f.Reason = QueueWaiting, fmt.Sprintf("Waiting for admission by queue %s.", queue)
	}
	if f.StartedAt == nil {
		return
	}
	// It ran before, so it was taken off the cluster, whatever keeps it from coming back.
	again := f.Reason
	f.ReasonCode, f.Reason = Preempted, "Preempted."
	if in.Queue != nil {
		if e := state(in.Queue.Workload, "Evicted", metav1.ConditionTrue); e != nil {
			f.Reason = sentenceOf(withDetail("Preempted", e.Message))
		}
	}
	f.Reason += " " + again
}

// queued says how far a Job has come in its queue.
func queued(q Queue, queue string, in Input) (code, sentence string) {
	on := "the cluster"
	if in.Cluster != "" {
		on = fmt.Sprintf("cluster %q", in.Cluster)
	}
	pending := state(q.Workload, "QuotaReserved", metav1.ConditionFalse)
	switch {
	case q.Missing:
		return KueueMissing, fmt.Sprintf("Kueue is not installed on %s: nothing admits the Job from queue %s.", on, queue)
	case q.NoLocalQueue:
		return QueueMissing, fmt.Sprintf("Namespace %s on %s has no LocalQueue %s: nothing admits the Job.", in.Job.Namespace, on, queue)
	case q.Workload == nil:
		return QueueNoWorkload, fmt.Sprintf("Kueue has not taken up the Job for queue %s: it has no Workload.", queue)
	case state(q.Workload, "Admitted", metav1.ConditionTrue) != nil:
		return QueueAdmitted, fmt.Sprintf("Admitted by queue %s, but the Job is still suspended.", queue)
	case state(q.Workload, "QuotaReserved", metav1.ConditionTrue) != nil:
		return QueueWaiting, fmt.Sprintf("Queue %s has reserved quota for the Job; its admission checks are not done.", queue)
	}
	where := "queue " + queue
	if q.Position > 0 {
		where += fmt.Sprintf(" (position %d)", q.Position)
	}
	message := ""
	if pending != nil {
		message = pending.Message
	}
	return QueueWaiting, withDetail("Waiting for admission by "+where, message)
}

// state returns the condition when it has that status; nil: it has not.
func state(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) *metav1.Condition {
	for i := range conditions {
		if c := &conditions[i]; c.Type == kind && c.Status == status {
			return c
		}
	}
	return nil
}

// sentenceOf closes a sentence of somebody else's.
func sentenceOf(s string) string { return strings.TrimRight(s, ". ") + "." }
