// Package placement decides which cluster an attempt goes to and records why.
//
// The order is fixed: candidates (what is eligible, within what SelectClusters answers), then the cluster that the
// submission asks for, then the selectors in name order (the first real answer wins), then the project's home cluster,
// then the default cluster. When the cluster to use is not a candidate the attempt waits; it never goes elsewhere by
// itself. No lock and no transaction is held while a plugin is asked.
package placement

import (
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// User is who submits, as selectors see it.
type User struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
	Admin  bool     `json:"admin"`
}

// Project is where, as selectors see it.
type Project struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	HomeCluster string            `json:"home_cluster,omitempty"` // id; empty: none
	// Allowed are the ids of the clusters that the project may use; nil: all.
	Allowed []string `json:"allowed,omitempty"`
}

// Request is one placement to make.
type Request struct {
	User             User
	Project          Project
	Process          process.Process
	Version          process.Version
	AttemptNumber    int32
	PreviousClusters []string
	DryRun           bool
}

// Candidate is a cluster as it stood when the decision was made.
type Candidate struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Type      string            `json:"type"`
	Labels    map[string]string `json:"labels,omitempty"`
	SortOrder int32             `json:"sort_order"`
	Version   string            `json:"kubernetes_version,omitempty"`
	Health    cluster.Health    `json:"health"`
	Capacity  *cluster.Capacity `json:"capacity,omitempty"`
	Active    int32             `json:"active_attempts"` // attempts placed there that have not ended
	Default   bool              `json:"default"`
	// Excluded says why the cluster is no candidate; empty: it is one.
	Excluded string `json:"excluded,omitempty"`
	// Passing, with Excluded, says that the cluster is no candidate only for now: it is active and allowed for the project.
	Passing bool `json:"-"`
}

// AnswerKind is what a selector said.
type AnswerKind string

// The kinds of answers. An error is never an abstention.
const (
	Selected  AnswerKind = "selected"
	Abstained AnswerKind = "abstained"
	Refused   AnswerKind = "refused"
	Failed    AnswerKind = "error"
)

// Answer is what one selector said.
type Answer struct {
	Kind      AnswerKind
	ClusterID string // with Selected
	Reason    string
	// Fail, with Refused: no cluster could ever run it, the attempt fails. Otherwise it waits.
	Fail bool
}

// Asked records one plugin call of a decision.
type Asked struct {
	Plugin    string        `json:"plugin"`
	Hook      string        `json:"hook"` // select_cluster or select_clusters
	Kind      AnswerKind    `json:"answer"`
	ClusterID string        `json:"cluster_id,omitempty"`
	Clusters  []string      `json:"clusters,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Ignored   bool          `json:"ignored,omitempty"` // an error skipped by the plugin's failure policy
	Took      time.Duration `json:"took_ns"`
}

// Rule names what decided.
type Rule string

// The rules in the order in which they apply.
const (
	ByRequest  Rule = "requested"
	BySelector Rule = "selector"
	ByHome     Rule = "home"
	ByDefault  Rule = "default"
)

// Outcome is what follows from a decision.
type Outcome string

// Outcomes of a decision.
const (
	Placed Outcome = "placed"
	Wait   Outcome = "wait"   // ask again when capacity or clusters change
	Retry  Outcome = "retry"  // a plugin failed: ask again with back-off, fail after the limit
	Fail   Outcome = "failed" // it can never run
)

// Decision is the record of one placement.
type Decision struct {
	ID         string      `json:"id"`
	AttemptID  string      `json:"attempt_id,omitempty"`
	At         time.Time   `json:"at"`
	Outcome    Outcome     `json:"outcome"`
	Rule       Rule        `json:"rule,omitempty"`
	ClusterID  string      `json:"cluster_id,omitempty"`
	Plugin     string      `json:"plugin,omitempty"` // that decided
	ReasonCode string      `json:"reason_code"`
	Reason     string      `json:"reason"`
	Asked      []Asked     `json:"asked"`
	Candidates []Candidate `json:"candidates"`
}
