// Package event holds the one ordered list of everything that happened, and wakes its readers.
//
// Sequence numbers are given in commit order: a reader that has seen number n never later finds a new event with a
// number of n or less.
package event

import (
	"encoding/json"
	"time"
)

// Event is one thing that happened. It never changes.
type Event struct {
	Seq       int64
	At        time.Time
	Kind      Kind
	ProjectID string // empty: not of a project
	ProcessID string
	VersionID string
	AttemptID string
	ClusterID string
	Actor     string // user id, or "system"
	// State is the attempt's state after the event; empty: not about an attempt.
	State   string
	Message string          // one sentence for people
	Data    json.RawMessage // details for programs; nil: none
}

// Kind says what happened.
type Kind string

// Kinds of events.
const (
	Submitted       Kind = "submitted"
	Decided         Kind = "decided"
	StateChanged    Kind = "state"
	ReasonChanged   Kind = "reason"
	CancelRequested Kind = "cancel-requested"
	RunStarted      Kind = "run-started"
	Retried         Kind = "retried" // another attempt follows one that the infrastructure ended
	Unreachable     Kind = "unreachable"
	Reachable       Kind = "reachable"
	ClusterChanged  Kind = "cluster"
	Orphan          Kind = "orphan"
	StorageChanged  Kind = "storage"
	Held            Kind = "lease" // a job namespace is held by another database, or no longer
)
