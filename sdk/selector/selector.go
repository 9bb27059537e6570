// Package selector is what the author of a selector plugin implements: saying which cluster a job goes to.
//
// A selector implements at least one of [Selector], [ClusterLister] and [StorageSelector]; sdk.Serve finds out by
// assertion. The host asks its selectors in the bytewise order of their file names, and the first answer that is not an
// abstention wins. An error is never an abstention: the operator's failure policy decides what follows. Every method may
// be called concurrently and must honour its context's deadline, by default 5 seconds.
package selector

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/sdk/internal/fault"
)

// Selector places attempts.
type Selector interface {
	// SelectCluster answers with [Select], [Abstain], [Refuse] or [Wait]. It may be asked again for the same version and
	// must not rely on being asked only once.
	SelectCluster(ctx context.Context, r Request) (Answer, error)
}

// ClusterLister says what a user may choose from.
type ClusterLister interface {
	// SelectClusters answers with [Choose] or [ChooseAny]. What is not in the answer is no candidate for this user.
	SelectClusters(ctx context.Context, r ListRequest) (Choice, error)
}

// StorageSelector says where a new project keeps its data.
type StorageSelector interface {
	// SelectStorage answers with [SelectBackend] or [AbstainBackend].
	SelectStorage(ctx context.Context, r StorageRequest) (StorageAnswer, error)
}

// Kind is what an answer says. The zero value is no answer at all and counts as an error, so it cannot be given by
// accident.
type Kind int

// The kinds of answers.
const (
	Selected  Kind = iota + 1 // run it there
	Abstained                 // no opinion, ask the next
	Refused                   // run it nowhere: the attempt fails
	Waiting                   // run it nowhere now: ask again when capacity or clusters change
)

// String returns the word that decisions use.
func (k Kind) String() string {
	switch k {
	case Selected:
		return "selected"
	case Abstained:
		return "abstained"
	case Refused:
		return "refused"
	case Waiting:
		return "waiting"
	}
	return fmt.Sprintf("no answer (%d)", int(k))
}

// Answer is what a selector says of one placement. Make it with [Select], [Abstain], [Refuse] or [Wait].
type Answer struct {
	Kind      Kind
	ClusterID string // with Selected
	Reason    string // one sentence for the user
}

// Select says: run it on this candidate. The reason is required.
func Select(clusterID, reason string) Answer {
	return Answer{Kind: Selected, ClusterID: clusterID, Reason: reason}
}

// Abstain says: no opinion, ask the next selector. The reason may be empty.
func Abstain(reason string) Answer { return Answer{Kind: Abstained, Reason: reason} }

// Refuse says: no cluster that this selector knows of could ever run it, so the attempt fails. Neither a later selector
// nor a default is used. The reason is required; give the numbers.
func Refuse(reason string) Answer { return Answer{Kind: Refused, Reason: reason} }

// Wait says: it must run nowhere now. The attempt waits and the selector is asked again when capacity or clusters
// change. Neither a later selector nor a default is used. The reason is required; give the numbers.
func Wait(reason string) Answer { return Answer{Kind: Waiting, Reason: reason} }

// Choice is what a user may choose from. Make it with [Choose] or [ChooseAny].
type Choice struct {
	Kind       Kind     // Selected or Abstained
	ClusterIDs []string // with Selected: best first, each at most once; empty: the user may choose none
	Reason     string
}

// Choose names the clusters that the user may choose from, best first. None at all is a choice too.
func Choose(clusterIDs ...string) Choice { return Choice{Kind: Selected, ClusterIDs: clusterIDs} }

// ChooseAny says: no opinion. The next selector is asked; when all abstain every candidate may be chosen.
func ChooseAny(reason string) Choice { return Choice{Kind: Abstained, Reason: reason} }

// StorageAnswer is what a selector says of a new project's storage. Make it with [SelectBackend] or [AbstainBackend].
type StorageAnswer struct {
	Kind      Kind   // Selected or Abstained
	BackendID string // with Selected
	Reason    string
}

// SelectBackend says: use this storage backend. The reason is required.
func SelectBackend(backendID, reason string) StorageAnswer {
	return StorageAnswer{Kind: Selected, BackendID: backendID, Reason: reason}
}

// AbstainBackend says: no opinion, ask the next selector. The reason may be empty.
func AbstainBackend(reason string) StorageAnswer {
	return StorageAnswer{Kind: Abstained, Reason: reason}
}

// Unavailable returns an error that says: something that the selector depends on cannot be reached now. It is an error
// like any other, with a class that operators see.
func Unavailable(format string, args ...any) error {
	return &fault.Fault{Code: codes.Unavailable, Err: fmt.Errorf(format, args...)}
}

// Request is everything that the host knows about one placement: a snapshot of one moment. It is read-only.
type Request struct {
	User    User
	Project Project
	Process Process
	Version Version
	// Candidates are the eligible clusters in the admin's order. May be empty.
	Candidates []Cluster
	// DryRun: nothing will be stored or started.
	DryRun bool
	// Ineligible are the other clusters that this user could come to use in this project. They take no placements now, so
	// never answer with one of them; they tell "not now" from "never". IneligibleKnown is false when the host does not say,
	// which is not the same as none.
	Ineligible      []Ineligible
	IneligibleKnown bool
}

// Ineligible is a cluster that takes no placements now.
type Ineligible struct {
	Cluster
	Reason string // such as "cordoned" or "not answering"
}

// ListRequest asks what a user may choose from.
type ListRequest struct {
	User       User
	Project    Project
	Candidates []Cluster // all clusters that are eligible for the project, in the admin's order
}

// StorageRequest asks for the storage of a project about to be created.
type StorageRequest struct {
	User     User
	Project  Project   // its id is not stored yet
	Backends []Backend // to choose from, sorted by name
}

// User is who submits.
type User struct {
	ID     string
	Name   string
	Groups []string // sorted
	Admin  bool
}

// Project owns processes.
type Project struct {
	ID            string
	Name          string
	Labels        map[string]string // that admins set
	HomeClusterID string            // empty: none
}

// Process is a named piece of work.
type Process struct {
	ID     string // empty in a dry run of a process that does not exist yet
	Name   string // any Unicode text
	Type   string // free text to key on; may be empty
	Labels map[string]string
}

// Version is one immutable submission of a process.
type Version struct {
	ID     string // empty in a dry run
	Number int64  // counts from 1 within the process; 0 in a dry run
	Image  string
	// Requests and Limits of one pod, by Kubernetes resource name, as canonical Kubernetes quantities. What is not asked
	// for is absent. [BaseUnits] turns them into the units of [Resource].
	Requests     map[string]string
	Limits       map[string]string
	NodeSelector map[string]string
	Labels       map[string]string
	// AttemptNumber is 1 for the first attempt; PreviousClusterIDs are where earlier ones were tried, oldest first.
	AttemptNumber      int32
	PreviousClusterIDs []string
}

// Cluster is a candidate.
type Cluster struct {
	ID                string // what an answer names
	Name              string
	Type              string
	Labels            map[string]string // that admins set
	SortOrder         int32
	KubernetesVersion string    // such as "v1.37.2"; empty: not known yet
	State             string    // "ready", "degraded" or "unknown"
	Capacity          *Capacity // nil: not known, which is never zero
	ActiveAttempts    int32     // placed there and not ended
	Default           bool      // the operator's default cluster
}

// Capacity is what is known of a cluster's schedulable nodes.
type Capacity struct {
	ObservedAt time.Time
	Nodes      int32
	// Resources by Kubernetes resource name. A resource that no node has is absent.
	Resources map[string]Resource
}

// Resource is one resource of a cluster, in base units: millicores for "cpu", bytes for "memory" and
// "ephemeral-storage", counts for all others. The free figures subtract attempts that are placed but not visible yet,
// and may be negative on an overcommitted cluster.
type Resource struct {
	NodeMax     int64 // the most that one node can ever hold
	NodeFreeMax int64 // the most that is free on one node now
	Total       int64 // over all nodes
	Free        int64 // over all nodes
}

// Backend is a place where projects keep their data.
type Backend struct {
	ID      string // what an answer names
	Name    string
	Type    string // such as "s3"
	Labels  map[string]string
	Default bool
}
