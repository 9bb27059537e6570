// Package reason says what the reason codes of attempts mean, whose doing they are and what can be done about them.
package reason

import "slices"

// Class tells whose doing a failure is.
type Class string

// Classes of reasons. A reason that is no failure has none.
const (
	None           Class = ""
	User           Class = "user"           // what was submitted
	Infrastructure Class = "infrastructure" // the cluster, the queue or somebody with access to it
)

// Reason is one code.
type Reason struct {
	Code    string
	Class   Class
	Retried bool // the version may be tried again by itself after it
	Meaning string
	Remedy  string // what the user can do; empty: nothing is to be done
}

// ClassOf returns the class of a code; None when it is not known.
func ClassOf(code string) Class { return find(code).Class }

// Retried says whether a failure for that reason is followed by another attempt, when the version allows one.
func Retried(code string) bool { return find(code).Retried }

// All returns every code, in the order of a life.
func All() []Reason { return slices.Clone(table) }

func find(code string) Reason {
	for _, r := range table {
		if r.Code == code {
			return r
		}
	}
	return Reason{}
}
