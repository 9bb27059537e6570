package store

import (
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestNoStateIsEnteredUntold(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		v := submit(t, db, "p", 1)[0]
		place(t, db, v.Attempt) // its change gives a decision and no event of the state
		must(db.UpdateAttempt(t.Context(), v.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ReasonCode, a.Reason = process.Failed, "exit-code", "It failed."
			a.ExitCode = new(int32(3))
			return nil, nil
		}))(t)
		var got []string
		for _, e := range must(db.Events(t.Context(), EventFilter{VersionID: v.ID}))(t) {
			got = append(got, string(e.Kind)+" "+e.State+" "+e.Message+" "+string(e.Data))
		}
		want := []string{
			`submitted placing Submitted {"attempt":1}`,
			`decided creating Placed {"attempt":1}`,
			`state creating  {"attempt":1,"was":"placing"}`,
			`state failed It failed. {"attempt":1,"was":"creating","reason_code":"exit-code","exit_code":3}`,
		}
		if len(got) != len(want) {
			t.Fatalf("%q", got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("got %s, want %s", got[i], want[i])
			}
		}
	})
}
