package store

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Every field of an attempt is stored and read back by both ways of reading.
func TestAttemptRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		a := place(t, db, submit(t, db, "p", 1)[0].Attempt)
		n := 0
		got, err := db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
			n = 0
			v := reflect.ValueOf(a).Elem()
			for i := range v.NumField() {
				f := v.Field(i)
				n++
				if !f.IsZero() && v.Type().Field(i).Name != "State" {
					continue
				}
				at := time.Date(2026, 1, 2, 3, 4, 5, n*1000, time.FixedZone("x", 3600))
				code, str := int32(-n), fmt.Sprintf("text '%d' \\ ? ü", n)
				switch f.Interface().(type) {
				case process.State:
					f.Set(reflect.ValueOf(process.Failed))
				case string:
					f.SetString(str)
				case bool:
					f.SetBool(true)
				case int32:
					f.SetInt(int64(n))
				case time.Duration:
					f.SetInt(int64(n) * int64(time.Microsecond))
				case time.Time:
					f.Set(reflect.ValueOf(at))
				case *time.Time:
					f.Set(reflect.ValueOf(&at))
				case *int32:
					f.Set(reflect.ValueOf(&code))
				default:
					t.Errorf("no value for %s", v.Type().Field(i).Name)
				}
			}
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(got)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s is lost", v.Type().Field(i).Name)
			}
		}
		if got.ErrorSince.Location() != time.UTC {
			t.Error("times are not UTC")
		}
		if d := cmp.Diff(got, must(db.Attempt(t.Context(), a.ID))(t)); d != "" {
			t.Errorf("read by bun: -returned +read\n%s", d)
		}
		if d := cmp.Diff(got, must(db.Version(t.Context(), a.VersionID))(t).Attempt); d != "" {
			t.Errorf("read with the version: -returned +read\n%s", d)
		}
		again := must(db.UpdateAttempt(t.Context(), a.ID, func(*process.Attempt) ([]event.Event, error) { return nil, process.ErrNoChange }))(t)
		if d := cmp.Diff(got, again); d != "" {
			t.Errorf("read for update: -returned +read\n%s", d)
		}
	})
}

// The table in package process is the only thing that says which state may follow.
func TestStatesFollowTheTable(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		for _, from := range process.States {
			for _, next := range process.States {
				a := to(t, db, submit(t, db, "p", 1)[0].Attempt, from)
				after, err := db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
					a.State, a.Reason = next, "changed"
					if next != process.Placing {
						a.ClusterID = cluster.DefaultID
					}
					return nil, nil
				})
				want := process.CheckTransition(from, next)
				if errors.Is(want, process.ErrTransition) != errors.Is(err, process.ErrTransition) || (want == nil) != (err == nil) {
					t.Errorf("%s to %s: %v, the table says %v", from, next, err, want)
				}
				v := must(db.Version(t.Context(), a.VersionID))(t)
				if err != nil {
					if d := cmp.Diff(a, v.Attempt); d != "" {
						t.Errorf("%s to %s was refused and changed the row:\n%s", from, next, d)
					}
					continue
				}
				if d := cmp.Diff(after, v.Attempt); d != "" {
					t.Errorf("%s to %s: -returned +read\n%s", from, next, d)
				}
				if (after.EndedAt != nil) != next.Terminal() {
					t.Errorf("%s to %s: ended at %v", from, next, after.EndedAt)
				}
				list, _, err := db.Versions(t.Context(), VersionFilter{State: next, Limit: 1})
				if err != nil || len(list) != 1 || list[0].ID != a.VersionID {
					t.Errorf("%s to %s: the version is not listed under its state: %v", from, next, err)
				}
			}
		}
	})
}

// Terminal states and their times never change.
func TestEndedAttemptsNeverChange(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		for _, end := range []process.State{process.Succeeded, process.Failed, process.Cancelled, process.Unknown} {
			a := to(t, db, submit(t, db, "p", 1)[0].Attempt, end)
			later := a.EndedAt.Add(time.Hour)
			for name, change := range map[string]func(a *process.Attempt){
				"state":  func(a *process.Attempt) { a.State = process.Running },
				"end":    func(a *process.Attempt) { a.EndedAt = &later },
				"no end": func(a *process.Attempt) { a.EndedAt = nil },
				"reason": func(a *process.Attempt) { a.Reason = "other" },
				"logs and exit code": func(a *process.Attempt) {
					code := int32(1)
					a.LogsStored, a.ExitCode = true, &code
				},
			} {
				_, err := db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
					change(a)
					return []event.Event{{Kind: event.StateChanged}}, nil
				})
				if !errors.Is(err, process.ErrTransition) {
					t.Errorf("%s: %s: %v", end, name, err)
				}
			}
			got := must(db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
				a.LogsStored = true
				return nil, nil
			}))(t)
			a.LogsStored, a.Revision, a.UpdatedAt = true, a.Revision+1, got.UpdatedAt
			if d := cmp.Diff(a, got); d != "" {
				t.Errorf("%s: logs stored changed more:\n%s", end, d)
			}
		}
	})
}

func TestPinsAreSetOnce(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		a := place(t, db, submit(t, db, "p", 1)[0].Attempt)
		set := func(change func(a *process.Attempt)) error {
			_, err := db.UpdateAttempt(t.Context(), a.ID, func(a *process.Attempt) ([]event.Event, error) {
				change(a)
				return nil, nil
			})
			return err
		}
		if err := set(func(a *process.Attempt) { a.JobUID, a.ClusterIdentity = "uid", "identity" }); err != nil {
			t.Fatal("setting what was empty:", err)
		}
		for name, change := range map[string]func(a *process.Attempt){
			"cluster":   func(a *process.Attempt) { a.ClusterID = "other" },
			"identity":  func(a *process.Attempt) { a.ClusterIdentity = "other" },
			"namespace": func(a *process.Attempt) { a.Namespace = "" },
			"job name":  func(a *process.Attempt) { a.JobName = "other" },
			"job uid":   func(a *process.Attempt) { a.JobUID = "" },
			"version":   func(a *process.Attempt) { a.VersionID = "other" },
			"number":    func(a *process.Attempt) { a.Number++ },
			"created":   func(a *process.Attempt) { a.CreatedAt = a.CreatedAt.Add(1 * time.Second) },
		} {
			if err := set(change); !errors.Is(err, process.ErrPinned) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestUpdateAttempt(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := submit(t, db, "p", 1)[0].Attempt
		seq := must(db.LastSeq(ctx))(t)

		t.Run("an error writes nothing", func(t *testing.T) {
			boom := errors.New("boom")
			if _, err := db.UpdateAttempt(ctx, a.ID, func(a *process.Attempt) ([]event.Event, error) {
				a.Reason = "x"
				return []event.Event{{}}, boom
			}); !errors.Is(err, boom) {
				t.Error(err)
			}
		})
		t.Run("no change writes nothing", func(t *testing.T) {
			for _, answer := range []error{process.ErrNoChange, fmt.Errorf("wrapped: %w", process.ErrNoChange), nil} {
				got, err := db.UpdateAttempt(ctx, a.ID, func(c *process.Attempt) ([]event.Event, error) {
					if answer != nil {
						c.Reason = "not written"
					}
					return nil, answer
				})
				if err != nil || !cmp.Equal(a, got) {
					t.Error(err, cmp.Diff(a, got))
				}
			}
		})
		t.Run("a panic reaches the caller and ends nothing else", func(t *testing.T) {
			func() {
				defer func() {
					if recover() != "boom" {
						t.Error("no panic")
					}
				}()
				_, _ = db.UpdateAttempt(ctx, a.ID, func(*process.Attempt) ([]event.Event, error) { panic("boom") })
			}()
		})
		t.Run("unknown", func(t *testing.T) {
			if _, err := db.UpdateAttempt(ctx, "none", nil); !errors.Is(err, process.ErrNotFound) {
				t.Error(err)
			}
			if _, err := db.Attempt(ctx, "none"); !errors.Is(err, process.ErrNotFound) {
				t.Error(err)
			}
		})
		if got := must(db.LastSeq(ctx))(t); got != seq {
			t.Errorf("%d events were written", got-seq)
		}
		t.Run("events are filled in", func(t *testing.T) {
			before := now()
			got := must(db.UpdateAttempt(ctx, a.ID, func(a *process.Attempt) ([]event.Event, error) {
				a.Reason = "bad \x00 and \xff from elsewhere"
				return []event.Event{{Kind: event.ReasonChanged, Message: a.Reason, Data: []byte(`{"a": 1}`)}, {Kind: event.RunStarted, Actor: "me"}}, nil
			}))(t)
			if got.Reason != "bad \uFFFD and \uFFFD from elsewhere" || got.Revision != a.Revision+1 {
				t.Errorf("%+v", got)
			}
			es := must(db.Events(ctx, EventFilter{After: seq}))(t)
			if len(es) != 2 || es[0].At.Before(before) {
				t.Fatalf("%+v", es)
			}
			want := event.Event{
				Seq: seq + 1, At: es[0].At, Kind: event.ReasonChanged, ProjectID: projectID, ProcessID: must(db.Version(ctx, a.VersionID))(t).ProcessID,
				VersionID: a.VersionID, AttemptID: a.ID, Actor: "system", State: "placing", Message: got.Reason, Data: []byte(`{"attempt":1,"a": 1}`),
			}
			if d := cmp.Diff(want, es[0]); d != "" {
				t.Error(d)
			}
			if es[1].Actor != "me" || es[1].Seq != seq+2 {
				t.Errorf("%+v", es[1])
			}
		})
		t.Run("concurrent updates add up", func(t *testing.T) {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, err := db.UpdateAttempt(ctx, a.ID, func(a *process.Attempt) ([]event.Event, error) {
						a.Tries++
						return nil, nil
					}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := must(db.Attempt(ctx, a.ID))(t); got.Tries != 50 {
				t.Error(got.Tries)
			}
		})
	})
}

func TestDecisions(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := submit(t, db, "p", 1)[0].Attempt
		d := placement.Decision{
			ID: newID(), AttemptID: a.ID, At: now(), Outcome: placement.Placed, Rule: placement.BySelector, ClusterID: cluster.DefaultID,
			Plugin: "selector-gpu", ReasonCode: "fits", Reason: "it has 8",
			Asked:      []placement.Asked{{Plugin: "selector-gpu", Hook: "select_cluster", Kind: placement.Selected, Took: 5}},
			Candidates: []placement.Candidate{{ID: "a", Labels: map[string]string{"x": "y"}, Capacity: &cluster.Capacity{Nodes: 3}}},
		}
		keep := func(a *process.Attempt) ([]event.Event, error) { return nil, process.ErrNoChange }
		must(db.Decide(ctx, d, keep))(t)
		if all := must(db.Decisions(ctx, a.ID))(t); len(all) != 0 {
			t.Errorf("a decision that changed nothing is stored: %+v", all)
		}
		change := func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ClusterID = process.Creating, d.ClusterID
			return nil, nil
		}
		missing := d
		missing.ClusterID = "gone"
		if _, err := db.Decide(ctx, missing, func(a *process.Attempt) ([]event.Event, error) {
			a.State, a.ClusterID = process.Creating, "gone"
			return nil, nil
		}); !errors.Is(err, cluster.ErrNotFound) {
			t.Error("placed on a cluster that is not there:", err)
		}
		got := must(db.Decide(ctx, d, change))(t)
		if got.State != process.Creating || got.ClusterID != cluster.DefaultID {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff([]placement.Decision{d}, must(db.Decisions(ctx, a.ID))(t)); diff != "" {
			t.Error(diff)
		}
		if v, _, err := db.Versions(ctx, VersionFilter{ClusterID: cluster.DefaultID}); err != nil || len(v) != 1 {
			t.Errorf("the version is not listed under its cluster: %+v", v)
		}
	})
}

func TestWorkLists(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		vs := submit(t, db, "p", 12)
		ids := func(all []process.Attempt, err error) string {
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, a := range all {
				for i, v := range vs {
					if v.Attempt.ID == a.ID {
						out = append(out, fmt.Sprint(i))
					}
				}
			}
			return strings.Join(out, " ")
		}
		at := now()
		must(db.UpdateAttempt(ctx, vs[1].Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
			a.NextTryAt = at.Add(time.Hour)
			return nil, nil
		}))(t)
		for i, s := range []process.State{process.Creating, process.Queued, process.Running, process.Cancelling, process.Succeeded, process.Cancelled, process.Unknown} {
			to(t, db, vs[2+i].Attempt, s)
		}
		for _, i := range []int{6, 8} { // these had a Job, and 8 has its logs
			a := must(db.Attempt(ctx, vs[i].Attempt.ID))(t)
			b := submit(t, db, "q", 1)[0]
			vs = append(vs, b)
			place(t, db, b.Attempt)
			must(db.UpdateAttempt(ctx, b.Attempt.ID, func(b *process.Attempt) ([]event.Event, error) {
				b.State, b.JobUID, b.LogsStored = a.State, "uid", i == 8
				return nil, nil
			}))(t)
		}
		if got := ids(db.PlacingDue(ctx, at, 10)); got != "0 9 10 11" {
			t.Error("due:", got)
		}
		if got := ids(db.PlacingDue(ctx, at, 2)); got != "0 9" {
			t.Error("due, two of them:", got)
		}
		if got := ids(db.PlacingDue(ctx, at.Add(time.Hour), 10)); got != "0 1 9 10 11" {
			t.Error("due later:", got)
		}
		if got := ids(db.LiveAttempts(ctx, cluster.DefaultID)); got != "2 3 4 5" {
			t.Error("live:", got)
		}
		if got := ids(db.LogsPending(ctx, cluster.DefaultID)); got != "12" {
			t.Error("logs pending:", got)
		}
		if got := must(db.LeftLogs(ctx))(t); len(got) != 0 {
			t.Error("left by removed clusters:", got)
		}
		must(db.rw.Exec("UPDATE clusters SET removed_at = 1 WHERE id = ?", cluster.DefaultID))(t)
		if got := must(db.LeftLogs(ctx))(t); !reflect.DeepEqual(got, []string{cluster.DefaultID}) {
			t.Error("left by removed clusters:", got)
		}
		must(db.rw.Exec("UPDATE clusters SET removed_at = NULL WHERE id = ?", cluster.DefaultID))(t)
		if got := must(db.LiveCounts(ctx))(t); !reflect.DeepEqual(got, map[string]int32{cluster.DefaultID: 4}) {
			t.Error("counts:", got)
		}
		if got := must(db.LiveStates(ctx))(t); !reflect.DeepEqual(got, map[process.State]int64{
			process.Placing: 5, process.Creating: 1, process.Queued: 1, process.Running: 1, process.Cancelling: 1,
		}) {
			t.Error("states:", got)
		}
		if got := ids(db.Attempts(ctx, vs[2].ID)); got != "2" {
			t.Error("attempts:", got)
		}
	})
}
