// Package process holds what users submit: processes, their immutable versions, and the attempts at running them.
//
// A process is a named piece of work in a project. A version is one submission of it. An attempt is one try at running
// a version on one cluster; it has at most one Kubernetes Job. The state of an attempt changes only along the table in
// state.go; the state of a version is that of its latest attempt.
package process

import (
	"time"
)

// Process is a named piece of work in a project. Name is unique within the project and may be any Unicode text.
type Process struct {
	ID        string
	ProjectID string
	Name      string
	Type      string // free text that selectors may key on
	Labels    map[string]string
	CreatedBy string // user id
	CreatedAt time.Time
}

// Spec is what one version runs. It is stored as the user wrote it, so that a move re-creates the same work.
type Spec struct {
	Image      string            `json:"image"`
	Command    []string          `json:"command,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Env        []EnvVar          `json:"env,omitempty"`
	WorkingDir string            `json:"working_dir,omitempty"`
	Requests   map[string]string `json:"requests,omitempty"` // Kubernetes quantities, canonical
	Limits     map[string]string `json:"limits,omitempty"`   // Kubernetes quantities, canonical
	// NodeSelector are node labels that the pods require.
	NodeSelector map[string]string `json:"node_selector,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	// Retries is the number of times that Kubernetes may start a new pod after a failed one (the Job's backoffLimit).
	Retries int32 `json:"retries"`
	// InfrastructureRetries is how many attempts may follow those that the infrastructure ended. It eats none of Retries.
	InfrastructureRetries int32 `json:"infrastructure_retries,omitempty"`
	// MaxRuntimeSeconds bounds the running time; nil: the cluster's limit alone.
	MaxRuntimeSeconds *int64 `json:"max_runtime_seconds,omitempty"`
	// StartLimits are the most seconds, by name of the limit (StartLimitNames), that an attempt may be blocked before it
	// starts; zero: for as long as it takes. A limit that is absent is the server's.
	StartLimits map[string]int64 `json:"start_limits,omitempty"`
	// Cluster is the id of an explicitly requested cluster; empty: placement decides.
	Cluster string `json:"cluster,omitempty"`
	// QueueName overrides the cluster's Kueue LocalQueue; empty: the cluster's.
	QueueName string `json:"queue_name,omitempty"`
}

// EnvVar is one environment variable, its value literal: "$" has no meaning in it.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Version is one immutable submission of a process.
type Version struct {
	ID             string
	ProcessID      string
	ProjectID      string
	ProcessName    string // the process's name, read with the version
	ProcessType    string // the process's type, read with the version
	ProcessLabels  map[string]string
	Number         int64 // counts from 1 within the process
	Spec           Spec
	SubmittedBy    string  // user id
	IdempotencyKey string  // unique within the project; empty: none
	BodyHash       string  // SHA-256 of the canonical submission, hex
	Attempt        Attempt // the latest attempt, read with the version
	CreatedAt      time.Time
}

// State is the version's state: its latest attempt's.
func (v Version) State() State { return v.Attempt.State }

// Attempt is one try at running a version on one cluster.
type Attempt struct {
	ID        string
	VersionID string
	ProjectID string
	Number    int32 // counts from 1 within the version
	State     State
	// ReasonCode is a stable word for programs; Reason a sentence for people. Both may be empty.
	ReasonCode string
	Reason     string

	// The pin: empty until placed, then never changed.
	ClusterID       string
	ClusterIdentity string // what the cluster was known by, see cluster.Observed.Identities; compare with cluster.Recognise
	Namespace       string
	JobName         string
	JobUID          string // empty until the Job is known to exist

	// NextTryAt is when placing or creating is to be tried again; Tries counts the failures since the last progress.
	NextTryAt time.Time
	Tries     int32
	// ErrorSince is when a placing attempt began to wait on a plugin error, for the limit of the failure policy.
	ErrorSince *time.Time

	// IntentAt is stored before the create request leaves; CreateDeadline is the last moment at which the request can
	// still take effect at the API server. Both are cleared by nothing: a later create overwrites them.
	IntentAt       *time.Time
	CreateDeadline *time.Time

	// UnreachableSince is set while the cluster cannot be reached; a flag beside the state.
	UnreachableSince *time.Time

	CancelRequestedAt *time.Time
	CancelRequestedBy string // user id

	ExitCode *int32 // of the main container of the last pod; nil: not known
	Runs     int32  // stretches of pods

	// BlockedBy is the start limit whose clock runs, and BlockedSince when it started; empty: none.
	BlockedBy    string
	BlockedSince *time.Time
	// StopCode is the reason code that the attempt fails with once its Job is gone: a limit is over. Empty: none is.
	StopCode string
	// Ran is the running time of the runs that are over. RunStartedAt is when the latest run began, by the cluster's
	// clock, and RunEnded says that it is among those.
	Ran          time.Duration
	RunStartedAt *time.Time
	RunEnded     bool

	// LogsStored says that the archive holds the attempt's logs to their end.
	LogsStored bool

	CreatedAt time.Time
	PlacedAt  *time.Time
	JobAt     *time.Time // when the Job was known to exist
	StartedAt *time.Time // when a container first ran
	EndedAt   *time.Time // when a terminal state was reached
	UpdatedAt time.Time
	// Revision counts the changes of the row; an update names the revision that it saw.
	Revision int64
}
