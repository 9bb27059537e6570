package process

import "github.com/nagelfluh/nagelfluh/core/internal/reason"

// Again says whether another attempt follows one that has ended. Its Job has failed, so nothing of it runs any more.
// What the user's work or wish ended is not tried again, nor what may have run to its end.
func Again(s Spec, a Attempt) bool {
	return a.State == Failed && a.CancelRequestedAt == nil && a.Number <= s.InfrastructureRetries && reason.Retried(a.ReasonCode)
}
