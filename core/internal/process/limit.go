package process

// Names of the start limits: what may keep an attempt from starting, each for a time of its own.
const (
	LimitImagePull       = "image_pull"       // its image cannot be pulled
	LimitUnschedulable   = "unschedulable"    // no node takes the pod
	LimitPodsRefused     = "pods_refused"     // quota, LimitRange or an admission webhook refuses the pod
	LimitContainerConfig = "container_config" // the container cannot be made as configured
	LimitQueue           = "queue"            // its Kueue queue does not admit it
	LimitKueue           = "kueue"            // the cluster has no Kueue; the server's own, no version has a say
)

// StartLimitNames are the start limits that a version may set.
var StartLimitNames = []string{LimitImagePull, LimitUnschedulable, LimitPodsRefused, LimitContainerConfig, LimitQueue}
