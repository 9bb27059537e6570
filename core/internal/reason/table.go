package reason

// table lists every code. docs/reasons.md is generated from it, and a test holds it against the code.
var table = []Reason{
	// Placing.
	{"requested", None, false, "Placed on the cluster that the submission asks for.", ""},
	{"selected", None, false, "Placed by a selector.", ""},
	{"home-cluster", None, false, "Placed on the project's home cluster.", ""},
	{"default-cluster", None, false, "Placed on the default cluster.", ""},
	{"refused", User, false, "A selector says that it must not run anywhere now.", "Change what the selector names, or wait."},
	{"plugin-error", Infrastructure, false, "A selector failed; it is asked again.", "Tell an admin when it stays so."},
	{"not-a-candidate", Infrastructure, false, "The cluster to use takes no work now.", "Wait, or name another cluster."},
	{"no-default-cluster", Infrastructure, false, "Nothing chose a cluster and there is no default one.", "Name a cluster, or have an admin set a default."},
	{"overruled", User, false, "A selector names another cluster than the submission, and is binding.", "Submit without a cluster."},
	{"unknown-cluster", Infrastructure, false, "The cluster to use is not there.", "Name another cluster."},
	{"placing-error-limit", Infrastructure, false, "A selector failed for too long.", "Have an admin mend the selector; submit again."},

	// Creating.
	{"create-retrying", None, false, "The cluster did not take the Job yet; it is tried again.", ""},
	{"create-unsure", None, false, "No clear answer came to a create request; it is looked for.", ""},
	{"name-held", None, false, "Another object holds the Job's name and is going.", ""},
	{"name-conflict", Infrastructure, false, "Another's Job has the name.", "Remove it and submit again."},
	{"create-refused", User, false, "The cluster refuses the Job.", "Read the cluster's message; correct the submission, or the namespace's rules."},

	{"namespace-held", Infrastructure, false, "Another installation or an older copy of the database holds the job namespace.", "Have an admin confirm which one is to go on."},
	{"may-have-run", Infrastructure, false, "The Job may have run under another copy of the database; its result is not known here.", "Look at what it wrote; submit again if need be."},
	{"storage-unreadable", Infrastructure, false, "The credentials of the project's storage cannot be read.", "Have an admin look at the storage backend."},
	{"storage-secret-retrying", None, false, "The Secret of the project's storage is not at the cluster yet; it is tried again.", ""},
	{"storage-secret-refused", Infrastructure, false, "The cluster refuses the Secret of the project's storage.", "Read the cluster's message; have an admin give the account the right."},
	{"storage-secret-conflict", Infrastructure, false, "Another's Secret has the name of that of the storage.", "Have an admin remove it; submit again."},

	// Waiting.
	{"no-pod", None, false, "The Job exists, its pod does not yet.", ""},
	{"pods-refused", User, false, "Quota, LimitRange or an admission webhook refuses the pod.", "Read the message: ask for less, set what is missing, or wait for quota."},
	{"queue-waiting", Infrastructure, false, "Its Kueue queue has not admitted it.", "Wait; the message says for what."},
	{"queue-no-workload", Infrastructure, false, "Kueue has not taken up the Job.", "Have an admin look at Kueue."},
	{"queue-missing", User, false, "The namespace has no LocalQueue of that name.", "Name one that exists."},
	{"queue-admitted", Infrastructure, false, "The queue has admitted the Job, and it is still suspended.", "Have an admin look at Kueue."},
	{"kueue-missing", User, false, "A queue is asked for at a cluster without Kueue.", "Submit without a queue, or to another cluster."},
	{"suspended", None, false, "Somebody suspended the Job.", "Resume it."},
	{"preempted", Infrastructure, false, "It ran, was taken off the cluster, and will run again.", ""},
	{"unschedulable", Infrastructure, false, "No node takes the pod.", "Ask for less, or for what nodes have; or wait."},
	{"scheduling", None, false, "The scheduler has not placed the pod yet.", ""},
	{"container-creating", None, false, "A node prepares the pod.", ""},
	{"image-pull", User, false, "The image cannot be pulled.", "Check the image's name and tag, and the registry's credentials."},
	{"invalid-image", User, false, "The image's name is no image name.", "Correct it."},
	{"container-config", User, false, "The container cannot be made as configured.", "Read the message; mostly a Secret is missing."},
	{"container-waiting", User, false, "The container does not start for another reason.", "Read the message."},
	{"restarting", None, false, "A pod failed; the next one is not there yet.", ""},

	// Running.
	{"running", None, false, "A container runs.", ""},
	{"sidecar-hold", None, false, "The main container has ended, another one keeps the pod.", "End the sidecar with the work."},
	{"finishing", None, false, "The pod has ended, the Job's result is not written yet.", ""},
	{"job-deleting", None, false, "Something deletes the Job.", ""},
	{"cluster-unreachable", None, false, "A stop is asked for, and the cluster does not answer.", ""},
	{"cluster-changed", Infrastructure, false, "Another cluster answers under the entry.", "Have an admin correct the connection."},
	{"stopping", None, false, "It is being stopped.", ""},
	{"cancel-requested", None, false, "A stop is asked for.", ""},

	// The end.
	{"completed", None, false, "The work has ended well.", ""},
	{"cancelled", None, false, "Somebody cancelled it.", ""},
	{"exit-code", User, false, "The work ended with another exit code than 0.", "Read its log."},
	{"oom-killed", User, false, "The work used more memory than its limit.", "Raise limits.memory, or use less."},
	{"storage-limit", User, false, "The work put more on the node's disk than its limit, and was evicted.", "Raise limits.ephemeral-storage, or write to the project's storage."},
	{"deadline-exceeded", User, false, "The pod ran longer than its deadline.", "Raise max_runtime_seconds."},
	{"max-runtime", User, false, "It ran for its maximal runtime; the sentence says whose limit that is.", "Raise max_runtime_seconds, or ask for another cluster."},
	{"backoff-exceeded", User, false, "All retries failed, with nothing more to say.", "Read its log."},
	{"job-failed", User, false, "Kubernetes ended the Job for another reason.", "Read the message."},
	{"evicted", Infrastructure, true, "The node evicted the pod, mostly for want of memory or disk.", "Ask for as much as it uses, so that it is placed where there is room."},
	{"node-lost", Infrastructure, true, "The node went away or shut down under the pod.", ""},
	{"node-refused", Infrastructure, true, "The node refused the pod that was placed on it.", ""},
	{"disrupted", Infrastructure, true, "The cluster ended the pod: preemption, drain or taint.", ""},
	{"pod-deleted", Infrastructure, true, "Somebody deleted the pod; its exit code is that of the kill.", ""},
	{"job-removed", Infrastructure, false, "Somebody removed the Job before its result was read. It may have run to its end, so it is not run again.", "Look at what it wrote; submit again if need be."},
	{"cluster-removed", Infrastructure, false, "An admin removed the cluster by force.", "Submit again."},
}
