// Package check holds what happened in a soak against what must never happen. It shares nothing with the server's own
// code: it reads the tables with plain SQL, the audit logs and manifests as JSON, and the logs as bytes.
package check

import (
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
)

// Input is all the evidence.
type Input struct {
	Wanted   []Wanted
	Versions []Version
	Attempts []Attempt
	Changes  []Change
	Clusters map[string]*Cluster // by their id at the server
	Logs     map[string]Log      // by attempt
	Notes    map[string][]Note   // by attempt, of every pod that began
	GPU      string              // id of the cluster with GPUs; empty: none
	Trouble  []string            // what the server and its plugins did wrong by themselves
}

// Wanted is one accepted submission, as the client remembers it.
type Wanted struct {
	plan.Process
	Key       string
	Version   string
	Doubles   []string // further versions that the same key gave
	Accepted  time.Time
	Cancelled bool // a cancel was asked for and answered
}

// Version is a row of process_versions.
type Version struct {
	ID, Key, State, Attempt string
}

// Attempt is a row of attempts. Times that are zero are not set.
type Attempt struct {
	ID, Version     string
	Number          int
	State, Code     string
	Reason          string
	Cluster         string
	Job, UID        string // name and UID of its Job
	ExitCode        *int
	LogsStored      bool
	CancelRequested time.Time
	Created, Placed time.Time
	JobAt, Started  time.Time
	Ended           time.Time
}

// Terminal says whether nothing may follow the state.
func Terminal(state string) bool {
	return state == "succeeded" || state == "failed" || state == "cancelled" || state == "unknown"
}

// Change is an event that gave an attempt a state.
type Change struct {
	Seq     int64
	At      time.Time
	Attempt string
	State   string
}

// Cluster is what an API server's audit log tells, and what was there at the end.
type Cluster struct {
	Name string
	Jobs map[string]*Job // by UID
	Pods map[string]*Pod // by UID
}

// Job is one Job that ever existed, of whoever.
type Job struct {
	Name, Namespace, UID string
	Attempt              string // label
	Created              time.Time
	Complete, Failed     time.Time // of the condition; zero: never
	Deletes              []Delete  // answered with success
	Live                 bool      // it was there at the end
}

// Delete is one request to delete.
type Delete struct {
	At   time.Time
	User string
	UID  string // precondition
}

// Pod is one pod that ever existed. Over is when it had ended or was gone; zero: never.
type Pod struct {
	Name, UID string
	Attempt   string // label
	Created   time.Time
	Running   time.Time // when a container was first reported running or ended
	Over      time.Time
	Alive     bool // it was there at the end and had not ended
}

// Note is what a pod wrote down by itself.
type Note struct {
	Pod   string
	Begin bool
	Exit  *int // it came to its end, with this code
	Term  *int // it was asked to stop after so many lines
}

// Log is what the archive has of an attempt.
type Log struct {
	Manifest bool
	Pods     []PodLog // in order
}

// PodLog is the log of the main container of a pod.
type PodLog struct {
	Pod      string
	Started  bool
	Complete bool
	Gaps     []string // codes
	Bytes    int64    // as the manifest says
	Text     []byte
}
