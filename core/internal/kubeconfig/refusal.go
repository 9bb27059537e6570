package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Class says what kind of thing a problem is. The words are stable.
type Class string

// Classes.
const (
	Unreadable    Class = "unreadable"    // no YAML or JSON mapping in UTF-8
	Oversized     Class = "oversized"     // larger, deeper or more manifold than any kubeconfig
	Ambiguous     Class = "ambiguous"     // said twice, or several things to choose from
	Contradiction Class = "contradiction" // two fields that exclude each other
	Unknown       Class = "unknown"       // a field that nobody has judged
	Missing       Class = "missing"       // something that is needed is not there
	Malformed     Class = "malformed"     // a value of the wrong type or form
	Program       Class = "program"       // would start a program or a login
	File          Class = "file"          // the path of a file
	Impersonation Class = "impersonation" // would act as another user
	Password      Class = "password"      // basic authentication
	Address       Class = "address"       // the server is no plain https URL
	Insecure      Class = "insecure"      // the operator does not allow unverified certificates
	Proxy         Class = "proxy"         // the operator does not list the proxy
	Expired       Class = "expired"       // credentials that have ended
)

// Problem is one thing that the policy does not allow.
type Problem struct {
	Class        Class
	Field        string // path such as users[0].user.exec; empty: the text as a whole
	Problem      string // what is wrong
	Remedy       string // what to do about it
	Line, Column int    // from 1; 0: not known
}

// String is the problem as one sentence.
func (p Problem) String() string {
	var b strings.Builder
	switch at := p.at(); {
	case p.Field != "" && at != "":
		fmt.Fprintf(&b, "%s (%s): ", p.Field, at)
	case p.Field != "" || at != "":
		b.WriteString(p.Field + at + ": ")
	}
	b.WriteString(p.Problem)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

func (p Problem) at() string {
	switch {
	case p.Line > 0 && p.Column > 0:
		return fmt.Sprintf("line %d, column %d", p.Line, p.Column)
	case p.Line > 0:
		return fmt.Sprintf("line %d", p.Line)
	}
	return ""
}

// Refusal is the error of Rebuild. The embedded problem is the first one of All.
type Refusal struct {
	Problem
	All []Problem
	// Contexts are the names to choose from when the text leaves the choice open; else nil.
	Contexts []string
}

func (r *Refusal) Error() string {
	texts := make([]string, len(r.All))
	for i, p := range r.All {
		texts[i] = p.String()
	}
	return "kubeconfig refused: " + strings.Join(texts, "; ")
}

// Expired says whether nothing is wrong but that the credentials have ended.
func (r *Refusal) Expired() bool {
	return !slices.ContainsFunc(r.All, func(p Problem) bool { return p.Class != Expired })
}

// maxProblems bounds what one answer lists.
const maxProblems = 20

// policy collects problems on the way through one text.
type policy struct {
	o        Options
	problems []Problem
	contexts []string // to choose from, when that is the problem
}

// refuse notes a problem at a node; nil: at no certain place.
func (p *policy) refuse(class Class, n *yaml.Node, field, problem, remedy string) {
	if len(p.problems) >= maxProblems {
		return
	}
	at := Problem{Class: class, Field: field, Problem: problem, Remedy: remedy}
	if n != nil {
		at.Line, at.Column = n.Line, n.Column
	}
	p.problems = append(p.problems, at)
}

// refusal is the error of a text with at least one problem.
func (p *policy) refusal() *Refusal {
	return &Refusal{Problem: p.problems[0], All: slices.Clone(p.problems), Contexts: p.contexts}
}
