// Package cluster holds the clusters that jobs may run on: what admins say of them and what is known of them.
package cluster

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// DefaultID is the id of the row that the first migration seeds.
const DefaultID = "default-cluster-00000000-0000-0000-0000-000000000000"

// Cluster is one row: the admin's part, and what the health monitor last saw.
type Cluster struct {
	ID   string
	Name string // unique among clusters that are not removed
	Type string // cluster type; the provider plugin that offers it connects
	// ProviderConfig is what the provider needs to connect: a JSON object, secret, never shown.
	ProviderConfig json.RawMessage
	Namespace      string // of the jobs; empty: the configured default
	Labels         map[string]string
	SortOrder      int32
	Active         bool   // false: retired, hidden from selection, history kept
	QueueName      string // Kueue LocalQueue of the jobs; empty: none
	MaxRuntime     *int64 // seconds; nil: none
	Provisioning   Provisioning
	Cordon         *Cordon       // nil: not cordoned
	Lease          *ForeignLease // nil: nobody else's stands there

	// What is known of it; kept by the health monitor.
	Observed Observed

	CreatedAt time.Time
	UpdatedAt time.Time
	// Revision counts the admin's changes; it is the ETag. ConfigRevision counts changes of type and config.
	Revision       int64
	ConfigRevision int64
}

// Provisioning is how far a registration has come.
type Provisioning string

// Provisioning states.
const (
	Pending     Provisioning = "pending"
	Provisioned Provisioning = "active"
	Broken      Provisioning = "failed"
)

// Cordon says that nothing new is placed, and who said so.
type Cordon struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Health is how a cluster stands as far as known.
type Health string

// Health states, see Judge. New, Ready and Degraded take placements; Suspect and Lost do not.
const (
	New      Health = "unknown" // not contacted yet
	Ready    Health = "ready"
	Degraded Health = "degraded" // works, with something amiss
	Suspect  Health = "suspect"  // not answering; no placements
	Lost     Health = "lost"     // not answering for longer than the grace
)

// Observed is what the health monitor last saw.
type Observed struct {
	Health    Health    `json:"health"`
	Reason    string    `json:"reason,omitempty"` // class such as "timeout"; empty when ready
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since"` // since when Health holds
	CheckedAt time.Time `json:"checked_at"`
	Version   string    `json:"version,omitempty"`  // Kubernetes version such as v1.37.2
	Identity  string    `json:"identity,omitempty"` // UID of kube-system or of the job namespace; empty: unknown. An admin alone makes it another one
	// NamespaceUID is that of the job namespace, by which an account that may not see kube-system knows the same cluster.
	NamespaceUID string     `json:"namespace_uid,omitempty"`
	Capacity     *Capacity  `json:"capacity,omitempty"`    // nil: unknown, never zero
	Unreachable  *time.Time `json:"unreachable,omitempty"` // since when no answer came; nil: reachable

	// Conditions are what Health follows from, those that were looked at, in the order of ConditionKinds.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Identities are what the cluster may be known by, separated by blanks; empty: nothing.
func (o Observed) Identities() string {
	if o.NamespaceUID == "" || o.NamespaceUID == o.Identity {
		return o.Identity
	}
	return strings.TrimSpace(o.Identity + " " + o.NamespaceUID)
}

// After is what the monitor saw of a row that had before: another cluster than was known changes nothing of what it is
// known by. An admin may have confirmed one while the monitor still looked at the other.
func (o Observed) After(before Observed) Observed {
	// Known by its namespace alone, it may have come to be known by kube-system.
	learned := before.Identity == before.NamespaceUID && before.Identity == o.NamespaceUID
	if before.Identity != "" && before.Identity != o.Identity && !learned {
		o.Identity, o.NamespaceUID = before.Identity, before.NamespaceUID
	}
	return o
}

// Recognise compares what a cluster shows, the UIDs of kube-system and of the job namespace, empty where they may not be
// seen, with what it may be known by. told is false when nobody can say whether it is the same: what is hidden is no proof.
func Recognise(identities, system, namespace string) (same, told bool) {
	known := strings.Fields(identities)
	for _, uid := range []string{system, namespace} {
		if uid != "" && slices.Contains(known, uid) {
			return true, true
		}
	}
	// The namespace may have been made anew: so another UID of it may be of the same cluster. That is for an admin to say.
	return false, len(known) > 0 && (system != "" || namespace != "")
}

// Capacity is what the schedulable nodes hold.
type Capacity struct {
	ObservedAt time.Time                   `json:"observed_at"`
	Nodes      int32                       `json:"nodes"`
	Resources  map[string]ResourceCapacity `json:"resources"`
}

// ResourceCapacity is one resource. Units: millicores for cpu, bytes for memory and ephemeral-storage, counts for all
// others. Free figures may be negative on an overcommitted cluster.
type ResourceCapacity struct {
	NodeMax     int64 `json:"node_max"`      // most that one node can ever hold
	NodeFreeMax int64 `json:"node_free_max"` // most that is free on one node
	Total       int64 `json:"total"`
	Free        int64 `json:"free"`
}

// Sentinel errors of the package; compare with errors.Is.
var (
	ErrNotFound = errors.New("cluster not found")
	ErrNameUsed = errors.New("cluster name is in use")
	ErrStale    = errors.New("cluster changed meanwhile")
	// ErrInUse: live attempts hold the cluster.
	ErrInUse = errors.New("cluster has live attempts")
)
