package store

import (
	"slices"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// told returns what is written of a change of an attempt: the events that the change gave, with the facts that programs
// read, and one for a new state that the change said nothing of. So no list of events has a gap between two states.
func told(before, after attemptModel, given []event.Event) []event.Event {
	events := slices.Clone(given)
	if before.State != after.State && !slices.ContainsFunc(events, func(e event.Event) bool { return e.Kind == event.StateChanged }) {
		events = append(events, event.Event{Kind: event.StateChanged, Message: after.Reason})
	}
	for i := range events {
		e := &events[i]
		e.ProjectID, e.ProcessID, e.VersionID, e.AttemptID = after.ProjectID, after.ProcessID, after.VersionID, after.ID
		e.ClusterID, e.State = after.ClusterID, after.State
		f := event.Facts{Attempt: after.Number}
		switch e.Kind {
		case event.StateChanged:
			f.Was, f.ReasonCode, f.ExitCode = before.State, after.ReasonCode, after.ExitCode
		case event.ReasonChanged:
			f.ReasonCode = after.ReasonCode
		}
		e.Data = f.With(e.Data)
	}
	return events
}
