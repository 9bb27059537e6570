package store

import (
	"fmt"
	"slices"
	"testing"
)

func TestEpochGrowsAndKnowsItsWriters(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		before, first, writers, err := db.BeginEpoch(ctx, "a")
		if err != nil || before != 0 || first != 1 || !slices.Equal(writers, []string{"a"}) {
			t.Fatalf("first: %d, %d, %v, %v", before, first, writers, err)
		}
		if epoch := must(db.AdvanceEpoch(ctx, 0))(t); epoch != 2 {
			t.Errorf("advanced to %d", epoch)
		}
		if epoch := must(db.AdvanceEpoch(ctx, 40))(t); epoch != 41 {
			t.Errorf("advanced beyond 40 to %d", epoch)
		}
		for i := range writersKept {
			if before, _, writers, err = db.BeginEpoch(ctx, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(writers) != writersKept || slices.Contains(writers, "a") || before != 41+writersKept-1 {
			t.Errorf("%d writers are kept; epoch %d", len(writers), before)
		}
	})
}
