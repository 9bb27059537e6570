package store

import (
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// What the infrastructure ended is tried again as often as the version allows; what the user's work ended is not.
func TestInfrastructureFailureIsTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		fail := func(a process.Attempt, code string) {
			t.Helper()
			a = to(t, db, a, process.Running)
			must(db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
				a.State, a.ReasonCode = process.Failed, code
				return nil, nil
			}))(t)
		}
		v := newVersion("p")
		v.Spec.InfrastructureRetries = 1
		out, _, err := db.Submit(t.Context(), submit(t, db, "other", 1)[0].ProjectID, []process.NewVersion{v})
		if err != nil {
			t.Fatal(err)
		}
		fail(out[0].Attempt, "node-lost")
		now := must(db.Version(t.Context(), v.ID))(t)
		if now.State() != process.Placing || now.Attempt.Number != 2 || now.Attempt.ClusterID != "" || now.Attempt.JobUID != "" {
			t.Fatalf("after a lost node: %+v", now.Attempt)
		}
		due, err := db.PlacingDue(t.Context(), now.Attempt.NextTryAt, 100)
		if err != nil || len(due) == 0 {
			t.Errorf("the new attempt is not due: %v", err)
		}
		news, err := db.News(t.Context(), 0, []event.Kind{event.Retried}, 10)
		if err != nil || len(news) != 1 || news[0].AttemptID != now.Attempt.ID {
			t.Errorf("events %+v: %v", news, err)
		}
		fail(now.Attempt, "node-lost")
		all := must(db.Attempts(t.Context(), v.ID))(t)
		if now = must(db.Version(t.Context(), v.ID))(t); now.State() != process.Failed || len(all) != 2 || all[0].State != process.Failed {
			t.Errorf("after the last one: %s, attempts %+v", now.State(), all)
		}

		v = newVersion("p")
		v.Spec.InfrastructureRetries = 1
		if out, _, err = db.Submit(t.Context(), out[0].ProjectID, []process.NewVersion{v}); err != nil {
			t.Fatal(err)
		}
		fail(out[0].Attempt, "exit-code")
		if now = must(db.Version(t.Context(), v.ID))(t); now.State() != process.Failed || now.Attempt.Number != 1 {
			t.Errorf("after the work's own failure: %+v", now.Attempt)
		}
	})
}
