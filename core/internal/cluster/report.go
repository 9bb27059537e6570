package cluster

import "time"

// Report is the outcome of one connection test: what was found on the way from the provider config to a cluster that jobs
// can run on. It holds no secret and stands as it is in the API and the CLI.
type Report struct {
	// OK says that jobs will run: reached, known to it, and nothing denied that no Job does without. A required permission
	// that is missing only takes something away, such as logs: it is a warning.
	OK bool `json:"ok"`
	// Class is what went wrong, one of the classes of package kube such as "timeout", or "policy" for a kubeconfig that is
	// refused; empty when OK.
	Class string `json:"class,omitempty"`
	// Message is one sentence on the outcome; Remedy is what to do about it, empty when OK.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Fields are the refused fields of the provider config or of the kubeconfig in it.
	Fields   []ReportField `json:"fields,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	// Contexts are the contexts to choose from when the kubeconfig has several and none is current.
	Contexts []string `json:"contexts,omitempty"`

	Server       string     `json:"server,omitempty"`       // URL; no secret in it
	Namespace    string     `json:"namespace,omitempty"`    // of the jobs
	Version      string     `json:"version,omitempty"`      // Kubernetes version such as v1.37.2
	Identity     string     `json:"identity,omitempty"`     // as Observed.Identity
	NamespaceUID string     `json:"-"`                      // as Observed.NamespaceUID
	SameAs       []string   `json:"same_as,omitempty"`      // names of other rows that are this cluster
	HTTPStatus   int        `json:"http_status,omitempty"`  // of the answer that decided; 0: none
	User         string     `json:"user,omitempty"`         // as the cluster knows the account
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`   // of the credentials; nil: not known to end
	LatencyMS    *float64   `json:"latency_ms,omitempty"`   // of one small request on an open connection; nil: none answered
	SkewSeconds  *float64   `json:"skew_seconds,omitempty"` // cluster's clock minus ours; nil: not told

	Phases      []Phase      `json:"phases"`
	Permissions []Permission `json:"permissions,omitempty"`
	Kueue       *KueueReport `json:"kueue,omitempty"`    // nil: not looked at
	Capacity    *Capacity    `json:"capacity,omitempty"` // nil: unknown

	TestedAt time.Time `json:"tested_at"`
	TookMS   float64   `json:"took_ms"`
}

// system is the UID of kube-system; empty: it may not be seen.
func (r Report) system() string {
	if r.Identity == r.NamespaceUID {
		return ""
	}
	return r.Identity
}

// recognise says whether the report is of the cluster that a row led to.
func (r Report) recognise(o Observed) (same, told bool) {
	if r.system() == "" && o.Identity != o.NamespaceUID && o.NamespaceUID == "" {
		// What is known may be of kube-system, which this account does not see.
		return o.Identity != "" && o.Identity == r.NamespaceUID, o.Identity == r.NamespaceUID
	}
	return Recognise(o.Identities(), r.system(), r.NamespaceUID)
}

// ReportField is one refused field.
type ReportField struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Phase is one step of a test, in order: provider, policy, resolve, connect, tls, http, credentials, permissions.
type Phase struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	TookMS  float64 `json:"took_ms"`
	Message string  `json:"message,omitempty"` // what was seen, such as the address, or why it failed
}

// Permission is one line of the table of permissions, as asked of the cluster.
type Permission struct {
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"` // with its subresource, such as pods/log
	Namespace string `json:"namespace,omitempty"`
	Required  bool   `json:"required"`
	// Allowed is "yes", "no", or "unknown" when the account may not ask.
	Allowed string `json:"allowed"`
	// Lost is what does not work without it.
	Lost string `json:"lost"`
}

// KueueReport says whether Kueue is there and which queues the namespace has.
type KueueReport struct {
	Installed bool          `json:"installed"`
	Queues    []QueueReport `json:"queues,omitempty"`
	// Message says what is missing, such as the queue that the row names; empty: nothing.
	Message string `json:"message,omitempty"`
}

// QueueReport is one LocalQueue.
type QueueReport struct {
	Name         string `json:"name"`
	ClusterQueue string `json:"cluster_queue"`
	Active       bool   `json:"active"`
	Message      string `json:"message,omitempty"`
}
