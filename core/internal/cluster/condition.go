package cluster

import (
	"slices"
	"time"
)

// Condition is one thing that is true of a cluster, or not, or not known.
type Condition struct {
	Type    ConditionType `json:"type"`
	Status  Status        `json:"status"`
	Reason  string        `json:"reason,omitempty"`  // a word for programs
	Message string        `json:"message,omitempty"` // a sentence
	Since   time.Time     `json:"since"`             // since when it has this status
}

// Status is what is known of a condition.
type Status string

// Statuses.
const (
	True    Status = "true"
	False   Status = "false"
	Unknown Status = "unknown"
)

// ConditionType names a condition. True is always the good answer.
type ConditionType string

// Conditions.
const (
	Reachable        ConditionType = "Reachable"
	SameCluster      ConditionType = "SameCluster"
	Authenticated    ConditionType = "Authenticated"
	Permitted        ConditionType = "Permitted"
	NamespaceReady   ConditionType = "NamespaceReady"
	Serving          ConditionType = "Serving"
	ProviderServed   ConditionType = "ProviderServed"
	CredentialsValid ConditionType = "CredentialsValid"
	ClockInStep      ConditionType = "ClockInStep"
	CapacityKnown    ConditionType = "CapacityKnown"
)

// ConditionKind is what a condition means. The user's documentation has the same table.
type ConditionKind struct {
	Type  ConditionType
	Means string // when it is true
	// Makes is the health of a cluster of which it is false; Ready: it does no harm.
	Makes Health
}

// ConditionKinds are all conditions, the gravest first: the first false one gives the reason of a cluster's health.
var ConditionKinds = []ConditionKind{
	{Reachable, "The Kubernetes API answers, and the provider gives a usable connection to it.", Suspect},
	{SameCluster, "It is the cluster that was first seen under this row.", Suspect},
	{Authenticated, "The cluster accepts the credentials.", Suspect},
	{Permitted, "The account may do what every Job needs.", Suspect},
	{NamespaceReady, "The namespace of the jobs is there, or may be but cannot be seen.", Suspect},
	{Serving, "The API server answers without errors.", Degraded},
	{ProviderServed, "A provider plugin serves the type of the row now.", Degraded},
	{CredentialsValid, "The credentials have not expired.", Degraded},
	{ClockInStep, "The cluster's clock and ours differ by less than 30 s.", Degraded},
	{CapacityKnown, "Nodes can be read: selectors see what is free.", Ready},
}

// Condition returns a condition; one that was never looked at is unknown.
func (o Observed) Condition(t ConditionType) Condition {
	for _, c := range o.Conditions {
		if c.Type == t {
			return c
		}
	}
	return Condition{Type: t, Status: Unknown}
}

// Set gives a condition a status; its time changes only when the status does. Others may hold the list, so it is copied.
func (o *Observed) Set(t ConditionType, s Status, reason, message string, at time.Time) {
	next := Condition{Type: t, Status: s, Reason: reason, Message: message, Since: at}
	before := o.Condition(t)
	if before.Status == s && !before.Since.IsZero() {
		next.Since = before.Since
	}
	if before == next {
		return
	}
	all := make([]Condition, 0, len(ConditionKinds))
	for _, kind := range ConditionKinds {
		switch c := o.Condition(kind.Type); {
		case kind.Type == t:
			all = append(all, next)
		case !c.Since.IsZero():
			all = append(all, c)
		}
	}
	o.Conditions = slices.Clip(all)
}

// Grace is how long what is wrong with a cluster may last.
type Grace struct {
	Suspect time.Duration // without an answer, or with errors for answers, until it is suspect
	Lost    time.Duration // without an answer, until it is lost
}

// Judge derives a cluster's health from its conditions, and from how long no answer has come as far as somebody was
// looking: a time in which this server was down counts for nothing. It says which condition made it so; nil: none.
func Judge(conditions []Condition, silent time.Duration, now time.Time, g Grace) (Health, *Condition) {
	o, health := Observed{Conditions: conditions}, New
	var cause *Condition
	for _, kind := range ConditionKinds {
		c := o.Condition(kind.Type)
		if c.Status == Unknown {
			continue
		}
		makes := kind.Makes
		switch {
		case c.Status == True:
			makes = Ready
		case kind.Type == Reachable && silent >= g.Lost:
			makes = Lost
		case kind.Type == Serving && now.Sub(c.Since) >= g.Suspect:
			makes = Suspect // errors that pass do no harm, those that last do
		}
		// A row whose cluster was never asked says nothing by what is known without asking.
		if makes == Ready && kind.Type != Reachable {
			continue
		}
		if worse(makes, health) {
			health = makes
			if makes != Ready {
				cause = &c
			}
		}
	}
	return health, cause
}

// worse orders the states of health.
func worse(a, b Health) bool {
	order := []Health{New, Ready, Degraded, Suspect, Lost}
	return slices.Index(order, a) > slices.Index(order, b)
}

// Change is one entry of a cluster's history.
type Change struct {
	At      time.Time
	From    Health
	To      Health // may be the same as From when only the reason changed
	Reason  string
	Message string
}
