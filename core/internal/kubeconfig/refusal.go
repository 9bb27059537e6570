package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is one thing that the policy does not allow.
type Problem struct {
	Field        string // path such as users[0].user.exec; empty: the text as a whole
	Problem      string // what is wrong
	Remedy       string // what to do about it; may be empty
	Line, Column int    // from 1; 0: not known
}

// String is the problem as one sentence.
func (p Problem) String() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field)
		if p.Line > 0 {
			fmt.Fprintf(&b, " (line %d)", p.Line)
		}
		b.WriteString(": ")
	} else if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	b.WriteString(p.Problem)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
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

// maxProblems bounds what one answer lists.
const maxProblems = 20

// policy collects problems on the way through one text.
type policy struct {
	o        Options
	problems []Problem
	contexts []string // to choose from, when that is the problem
}

func (p *policy) refuse(n *yaml.Node, field, problem, remedy string) {
	if len(p.problems) >= maxProblems {
		return
	}
	at := Problem{Field: field, Problem: problem, Remedy: remedy}
	if n != nil {
		at.Line, at.Column = n.Line, n.Column
	}
	p.problems = append(p.problems, at)
}

// refusal is the error of a text with at least one problem.
func (p *policy) refusal() *Refusal {
	return &Refusal{Problem: p.problems[0], All: slices.Clone(p.problems), Contexts: p.contexts}
}
