package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rule is one thing that must hold.
type Rule string

// The rules, in the words of the design's invariants.
const (
	NothingLost     Rule = "nothing is lost"
	NothingDoubled  Rule = "nothing is doubled"
	NoOrphan        Rule = "no Job without an attempt"
	CancelledIsGone Rule = "no running pod of an ended one"
	StateTrue       Rule = "every terminal state is true"
	StateFinal      Rule = "terminal states never change"
	DeletedByRight  Rule = "Jobs are deleted by UID, after their end or on request"
	LogComplete     Rule = "every log is complete"
	NoTrouble       Rule = "no crash, no wrong answer, nothing left behind"
)

// Rules lists every rule in the order of a report.
var Rules = []Rule{NothingLost, NothingDoubled, NoOrphan, CancelledIsGone, StateTrue, StateFinal, DeletedByRight, LogComplete, NoTrouble}

// Violation is one breach of a rule.
type Violation struct {
	Rule    Rule
	Process string // name; empty: not of one
	Attempt string
	Text    string
}

func (v Violation) String() string {
	who := strings.TrimSpace(v.Process + " " + v.Attempt)
	if who != "" {
		who += ": "
	}
	return fmt.Sprintf("%s: %s%s", v.Rule, who, v.Text)
}

// Result is what a check came to.
type Result struct {
	Violations []Violation
	Checked    map[Rule]int // how many things were held against each rule
}

// Count is how often a rule is broken.
func (r Result) Count(rule Rule) int {
	n := 0
	for _, v := range r.Violations {
		n += btoi(v.Rule == rule)
	}
	return n
}

// checker has the evidence by attempt.
type checker struct {
	Input
	result   Result
	wanted   map[string]*Wanted // by version
	versions map[string]Version
	attempts map[string]Attempt
	of       map[string][]Attempt // by version, in order
	jobs     map[string][]*Job    // by attempt, of all clusters
	pods     map[string][]*Pod    // by attempt, in order of creation
}

// Check holds the evidence against every rule.
func Check(in Input) Result {
	c := &checker{
		Input: in, result: Result{Checked: map[Rule]int{}}, wanted: map[string]*Wanted{}, versions: map[string]Version{},
		attempts: map[string]Attempt{}, of: map[string][]Attempt{}, jobs: map[string][]*Job{}, pods: map[string][]*Pod{},
	}
	for i := range in.Wanted {
		c.wanted[in.Wanted[i].Version] = &in.Wanted[i]
	}
	for _, v := range in.Versions {
		c.versions[v.ID] = v
	}
	for _, a := range in.Attempts {
		c.attempts[a.ID] = a
		c.of[a.Version] = append(c.of[a.Version], a)
	}
	for _, cluster := range in.Clusters {
		for _, j := range cluster.Jobs {
			c.jobs[j.Attempt] = append(c.jobs[j.Attempt], j)
		}
		for _, p := range cluster.Pods {
			c.pods[p.Attempt] = append(c.pods[p.Attempt], p)
		}
	}
	for _, pods := range c.pods {
		slices.SortFunc(pods, func(a, b *Pod) int { return a.Created.Compare(b.Created) })
	}
	c.lost()
	c.orphans()
	c.final()
	for _, a := range in.Attempts {
		c.doubled(a)
		c.gone(a)
		c.truth(a)
		c.deleted(a)
		c.logs(a)
	}
	for _, t := range in.Trouble {
		c.bad(NoTrouble, Attempt{}, "%s", t)
	}
	c.result.Checked[NoTrouble] = 1
	slices.SortStableFunc(c.result.Violations, func(a, b Violation) int {
		return cmp.Compare(slices.Index(Rules, a.Rule), slices.Index(Rules, b.Rule))
	})
	return c.result
}

func (c *checker) bad(rule Rule, a Attempt, format string, args ...any) {
	v := Violation{Rule: rule, Attempt: a.ID, Text: fmt.Sprintf(format, args...)}
	if w := c.wanted[a.Version]; w != nil {
		v.Process = w.Name
	}
	c.result.Violations = append(c.result.Violations, v)
}

func (c *checker) look(rule Rule) { c.result.Checked[rule]++ }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
