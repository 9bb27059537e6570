package process

import (
	"errors"
	"fmt"
	"slices"
)

// State is where an attempt stands.
type State string

// The states of an attempt. Succeeded, Failed, Cancelled and Unknown are terminal: they and their times never change.
const (
	Placing    State = "placing"    // no cluster yet
	Creating   State = "creating"   // a cluster is pinned; the Job may or may not exist there
	Queued     State = "queued"     // the Job exists, no container runs; the reason says why
	Running    State = "running"    // a container runs
	Cancelling State = "cancelling" // a stop is asked for; the cluster has not confirmed that all is gone
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
	Unknown    State = "unknown" // the Job was gone before its result was read, or its cluster was removed by force
)

// States lists every state in the order of a life.
var States = []State{Placing, Creating, Queued, Running, Cancelling, Succeeded, Failed, Cancelled, Unknown}

// Terminal says whether nothing follows the state.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == Unknown
}

// Valid says whether s is a state at all.
func (s State) Valid() bool { return slices.Contains(States, s) }

// transitions is the only place that says which state may follow which. The docs are generated from it.
//
// A cancelling attempt ends in the truth: cancelled, or what the Job had come to before the stop took effect.
var transitions = map[State][]State{
	Placing:    {Creating, Failed, Cancelled},
	Creating:   {Queued, Running, Succeeded, Failed, Cancelling, Unknown},
	Queued:     {Running, Succeeded, Failed, Cancelling, Unknown},
	Running:    {Queued, Succeeded, Failed, Cancelling, Unknown},
	Cancelling: {Succeeded, Failed, Cancelled, Unknown},
}

// ErrTransition is wrapped by every refusal of CheckTransition.
var ErrTransition = errors.New("state change not allowed")

// CheckTransition says whether an attempt may go from one state to another. Staying is allowed in every state that is
// not terminal (the reason may change).
func CheckTransition(from, to State) error {
	if from == to && !from.Terminal() {
		return nil
	}
	if slices.Contains(transitions[from], to) {
		return nil
	}
	return fmt.Errorf("%w: %s to %s", ErrTransition, from, to)
}

// Next lists the states that may follow s, for docs and tests.
func Next(s State) []State { return slices.Clone(transitions[s]) }
