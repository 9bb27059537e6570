package process

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

const statesDoc = "../../../docs/states.md"

// What each state means to the person who submitted.
var meaning = map[State]string{
	Placing:    "no cluster is chosen yet; the reason says what it waits for",
	Creating:   "a cluster is chosen and will not change; the Job is being created there",
	Queued:     "the Job exists and no container runs; the reason comes from the cluster (capacity, image pull, quota, queue)",
	Running:    "a container runs",
	Cancelling: "a stop is asked for; the cluster has not confirmed yet that the Job and its pods are gone",
	Succeeded:  "the Job completed",
	Failed:     "the Job failed, was refused, could never be placed, or passed a limit; the reason says which",
	Cancelled:  "it was stopped on request and nothing of it is left at the cluster",
	Unknown:    "the Job was gone before its result could be read, or its cluster was removed by force; it is not run again by itself",
}

func renderStates() string {
	var b strings.Builder
	b.WriteString(`# The states of an attempt

<!-- Generated from the table in core/internal/process/state.go: cd core && go test ./internal/process -run StatesDoc -update -->

A version has the state of its latest attempt. *Unreachable since* is a flag beside the state: a cluster that does not answer
changes no state.

` + "```mermaid\nstateDiagram-v2\n  [*] --> placing\n")
	for _, from := range States {
		for _, to := range Next(from) {
			fmt.Fprintf(&b, "  %s --> %s\n", from, to)
		}
		if from.Terminal() {
			fmt.Fprintf(&b, "  %s --> [*]\n", from)
		}
	}
	b.WriteString("```\n\n| state | meaning | may become |\n| --- | --- | --- |\n")
	for _, s := range States {
		next := make([]string, 0, len(States))
		for _, n := range Next(s) {
			next = append(next, "`"+string(n)+"`")
		}
		may := strings.Join(next, ", ")
		if s.Terminal() {
			may = "nothing: it and its times never change"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s, meaning[s], may)
	}
	return b.String()
}

func TestStatesDocIsGenerated(t *testing.T) {
	want := renderStates()
	if *update {
		if err := os.WriteFile(statesDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/states.md is not what the table says: go test ./internal/process -run StatesDoc -update")
	}
}

func TestTransitions(t *testing.T) {
	for _, from := range States {
		for _, to := range States {
			err := CheckTransition(from, to)
			switch {
			case from.Terminal() && err == nil:
				t.Errorf("terminal %s may become %s", from, to)
			case from == to && !from.Terminal() && err != nil:
				t.Errorf("%s may not stay: %v", from, err)
			}
		}
		if !from.Terminal() && len(Next(from)) == 0 {
			t.Errorf("%s leads nowhere", from)
		}
	}
	// Rules that the table must keep, in the words of the design.
	for _, c := range []struct {
		from, to State
		ok       bool
	}{
		{Queued, Running, true}, {Running, Queued, true},
		{Cancelling, Running, false}, {Cancelling, Succeeded, true}, {Cancelling, Cancelled, true},
		{Running, Cancelled, false}, {Queued, Cancelled, false}, {Creating, Cancelled, false},
		{Placing, Cancelled, true}, {Placing, Running, false}, {Creating, Placing, false},
	} {
		if err := CheckTransition(c.from, c.to); (err == nil) != c.ok {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}
