package evidence

import "github.com/nagelfluh/nagelfluh/core/internal/process"

// Reason codes: stable words for programs, beside the sentence for people. A code says what was seen, not what follows.
const (
	// While the Job waits.
	NoPod            = "no-pod"             // the Job exists, no pod of it yet
	PodsRefused      = "pods-refused"       // the cluster refuses the Job's pods: quota, LimitRange, webhook
	QueueWaiting     = "queue-waiting"      // suspended until its Kueue queue admits it
	QueueNoWorkload  = "queue-no-workload"  // Kueue has made no Workload of the Job
	QueueMissing     = "queue-missing"      // the namespace has no such LocalQueue
	QueueAdmitted    = "queue-admitted"     // admitted, and the Job is still suspended
	KueueMissing     = "kueue-missing"      // a queue is asked for and the cluster has no Kueue
	Suspended        = "suspended"          // suspended by something other than a queue
	Preempted        = "preempted"          // ran, was suspended or evicted, will run again
	Unschedulable    = "unschedulable"      // no node takes the pod
	Scheduling       = "scheduling"         // the scheduler has not placed the pod yet
	ContainerStart   = "container-creating" // a node prepares the pod
	ImagePull        = "image-pull"         // the image cannot be pulled
	InvalidImage     = "invalid-image"      // the image's name is no image name
	ContainerConfig  = "container-config"   // the container cannot be made as configured
	ContainerWaiting = "container-waiting"  // the container waits for another reason
	Restarting       = "restarting"         // a pod failed, the next one is not there yet

	// While it runs.
	Running     = "running"
	SidecarHold = "sidecar-hold" // the main container has ended, another one keeps the pod
	Finishing   = "finishing"    // the pod has ended, the Job's result is not written yet
	Deleting    = "job-deleting" // something deletes the Job

	// At the end.
	Completed        = "completed"
	ExitNonZero      = "exit-code"
	OOMKilled        = "oom-killed"
	DeadlineExceeded = "deadline-exceeded"
	StorageLimit     = "storage-limit" // evicted for what it put on the node's disk
	Evicted          = "evicted"
	NodeLost         = "node-lost"        // the node went away or shut down
	NodeRefused      = "node-refused"     // the node refused the pod that was placed on it
	Disrupted        = "disrupted"        // preemption, drain or taint
	PodDeleted       = "pod-deleted"      // somebody deleted the pod
	BackoffExceeded  = "backoff-exceeded" // all retries failed, with nothing more to say
	JobFailed        = "job-failed"       // the Job failed for another reason of Kubernetes
)

// limits names the start limit of each reason that has one.
var limits = map[string]string{
	ImagePull: process.LimitImagePull, InvalidImage: process.LimitImagePull,
	Unschedulable:   process.LimitUnschedulable,
	PodsRefused:     process.LimitPodsRefused,
	ContainerConfig: process.LimitContainerConfig, ContainerWaiting: process.LimitContainerConfig,
	QueueWaiting: process.LimitQueue, QueueNoWorkload: process.LimitQueue, QueueMissing: process.LimitQueue, QueueAdmitted: process.LimitQueue,
	KueueMissing: process.LimitKueue,
}
