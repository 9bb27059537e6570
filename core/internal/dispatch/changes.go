package dispatch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// system is the actor of events that no user caused.
const system = "system"

// pin ties the attempt to a cluster for good.
func pin(a *process.Attempt, c cluster.Cluster, namespace, processName string) {
	a.ClusterID, a.ClusterIdentity = c.ID, c.Observed.Identities()
	a.Namespace, a.JobName = namespace, job.Name(processName, a.ID)
}

// intend notes, before it is sent, that a create request may take effect until the window closes.
func intend(a *process.Attempt, now time.Time, window time.Duration) {
	deadline := now.Add(window)
	a.IntentAt, a.CreateDeadline = &now, &deadline
}

// end sets a terminal state.
func end(a *process.Attempt, state process.State, code, reason string, now time.Time) {
	a.State, a.ReasonCode, a.Reason = state, code, reason
	a.EndedAt = &now
}

func decided(dec placement.Decision) event.Event {
	data, err := json.Marshal(struct {
		Decision string            `json:"decision"`
		Outcome  placement.Outcome `json:"outcome"`
		Rule     placement.Rule    `json:"rule,omitempty"`
		Plugin   string            `json:"plugin,omitempty"`
		Code     string            `json:"reason_code,omitempty"`
	}{dec.ID, dec.Outcome, dec.Rule, dec.Plugin, dec.ReasonCode})
	if err != nil {
		data = nil // strings always encode
	}
	return event.Event{Kind: event.Decided, Actor: system, Message: dec.Reason, Data: data}
}

// runsStarted tells of every run since the last one known, those that were over before they were seen included.
func runsStarted(known, now int32) (events []event.Event) {
	for n := known + 1; n <= now; n++ {
		events = append(events, event.Event{
			Kind: event.RunStarted, Actor: system, Message: fmt.Sprintf("Run %d started.", n), Data: details("run", n),
		})
	}
	return events
}

// outOfReach tells that the attempt's cluster cannot be reached.
func outOfReach(clusterName string, since time.Time, cause error) event.Event {
	return event.Event{
		Kind: event.Unreachable, Actor: system, Message: fmt.Sprintf("Cluster %q does not answer: %v", clusterName, cause),
		Data: details("since", since),
	}
}

// back takes the flag off an attempt whose cluster answers, and tells of it; none: there was no flag.
func back(a *process.Attempt, clusterName string, now time.Time) []event.Event {
	if a.UnreachableSince == nil {
		return nil
	}
	since := *a.UnreachableSince
	a.UnreachableSince = nil
	return []event.Event{{
		Kind: event.Reachable, Actor: system, Data: details("since", since),
		Message: fmt.Sprintf("Cluster %q answers again, after %s.", clusterName, now.Sub(since).Round(time.Second)),
	}}
}

func details(name string, value any) json.RawMessage {
	data, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return nil // numbers and times always encode
	}
	return data
}

func changedTo(reason string) event.Event {
	return event.Event{Kind: event.StateChanged, Actor: system, Message: reason}
}

func reasonNow(reason string) event.Event {
	return event.Event{Kind: event.ReasonChanged, Actor: system, Message: reason}
}
