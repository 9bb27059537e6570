// Package permission holds the one table of what the account of a cluster needs there: the connection test asks for it,
// and the documentation and the manifests are held to it.
package permission

import "strings"

// Need is how much depends on a rule.
type Need string

// Needs. An account should have everything but the optional rules; without an essential one no Job runs.
const (
	Essential Need = "essential"
	Required  Need = "required"
	Optional  Need = "optional"
)

// Scope is where a rule applies.
type Scope string

// Scopes.
const (
	JobNamespace Scope = "job namespace"            // the namespace of the Jobs
	JobItself    Scope = "the job namespace itself" // the Namespace object of it
	System       Scope = "`kube-system` itself"     // the Namespace object of it
	Own          Scope = "its own ServiceAccount"   // for accounts that are one
	Everywhere   Scope = "all of the cluster"       // what has no namespace, or that of all
)

const (
	systemName = "kube-system"
	account    = "system:serviceaccount:" // begins the user names of ServiceAccounts
)

// Rule is one line of the table.
type Rule struct {
	Group    string // empty: core
	Resource string // with its subresource, such as pods/log
	Verbs    []string
	Scope    Scope
	Need     Need
	// Lost is what does not work without it, as the end of a sentence.
	Lost string
}

// Kueue is the API group of Kueue; its rules matter only where it is installed.
const Kueue = "kueue.x-k8s.io"

// KueueVisibility is the API group in which Kueue tells positions within queues, where that is switched on.
const KueueVisibility = "visibility.kueue.x-k8s.io"

// Table is all that Nagelfluh asks for.
func Table() []Rule {
	return []Rule{
		{"batch", "jobs", []string{"create", "get", "list", "watch", "delete"}, JobNamespace, Essential, "no Job can run, be followed or be cancelled"},
		{"", "pods", []string{"get", "list", "watch"}, JobNamespace, Essential, "what becomes of a Job is not seen"},
		{"", "pods/log", []string{"get"}, JobNamespace, Required, "logs will not be available"},
		{"", "events", []string{"list", "watch"}, JobNamespace, Required, "the reasons why a Job waits or has no pod are not seen"},
		{"", "secrets", []string{"create", "get", "update", "delete"}, JobNamespace, Required, "the credentials of storage cannot be brought to Jobs: those of projects with storage fail"},
		{"coordination.k8s.io", "leases", []string{"get", "create", "update"}, JobNamespace, Required, "a second server on a copy of the database is not noticed"},
		{"", "nodes", []string{"list"}, Everywhere, Optional, "the capacity is unknown; selectors go by the labels of the cluster"},
		{"", "pods", []string{"list"}, Everywhere, Optional, "what others use is not seen: free figures are too high"},
		{"", "namespaces", []string{"get"}, System, Optional, "the cluster is known by the job namespace alone, which can be made anew"},
		{"", "namespaces", []string{"get"}, JobItself, Optional, "a missing job namespace is not noticed before the first Job"},
		{"", "namespaces", []string{"create"}, Everywhere, Optional, "a missing job namespace has to be made by an admin"},
		{Kueue, "localqueues", []string{"get", "list"}, JobNamespace, Optional, "the queues of the namespace are not seen"},
		{Kueue, "workloads", []string{"get", "list", "watch"}, JobNamespace, Optional, "why a Job waits in its queue is not seen"},
		{KueueVisibility, "localqueues/pendingworkloads", []string{"get"}, JobNamespace, Optional, "the position of a Job within its queue is not seen"},
		{Kueue, "clusterqueues", []string{"get", "list"}, Everywhere, Optional, "what stands behind a queue is not seen"},
		{"", "serviceaccounts/token", []string{"create"}, Own, Optional, "the token cannot be renewed before it ends"},
	}
}

// Check is one question to a cluster: may the account do this?
type Check struct {
	Rule
	Verb      string
	Namespace string // empty: everywhere, or the resource has none
	Name      string // of the one object; empty: any
}

// Checks are the questions for an account, whose user name may be unknown, and the namespace of its Jobs.
func Checks(namespace, user string) []Check {
	var out []Check
	for _, r := range Table() {
		c := Check{Rule: r}
		switch r.Scope {
		case JobNamespace:
			c.Namespace = namespace
		case JobItself:
			c.Namespace, c.Name = namespace, namespace
		case System:
			c.Namespace, c.Name = systemName, systemName
		case Own:
			ns, name, isAccount := strings.Cut(strings.TrimPrefix(user, account), ":")
			if !isAccount || !strings.HasPrefix(user, account) {
				continue
			}
			c.Namespace, c.Name = ns, name
		}
		for _, c.Verb = range r.Verbs {
			out = append(out, c)
		}
	}
	return out
}

// Split returns resource and subresource.
func (r Rule) Split() (resource, sub string) {
	resource, sub, _ = strings.Cut(r.Resource, "/")
	return resource, sub
}

// Markdown is the table of the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| group | resource | verbs | where | need | without it |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range Table() {
		group := "core"
		if r.Group != "" {
			group = "`" + r.Group + "`"
		}
		b.WriteString("| " + strings.Join([]string{group, "`" + r.Resource + "`", strings.Join(r.Verbs, ", "),
			string(r.Scope), string(r.Need), r.Lost}, " | ") + " |\n")
	}
	return b.String()
}
