package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// A reader that has seen number n never later finds a new event with a number of n or less: it misses none.
func TestTailingReaderMissesNothing(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		const writers, each = 16, 40
		vs := submit(t, db, "p", writers)
		start := must(db.LastSeq(t.Context()))(t)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		woken, unsubscribe := db.Hub().Subscribe()
		defer unsubscribe()
		var wg sync.WaitGroup
		var wrote [writers]int
		for w := range writers {
			wg.Go(func() {
				for n := range each {
					count := 1 + rand.IntN(20)
					fails := n%5 == 4
					_, err := db.UpdateAttempt(ctx, vs[w].Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
						a.Tries++
						es := make([]event.Event, count)
						for i := range es {
							es[i] = event.Event{Kind: event.ReasonChanged, Message: fmt.Sprint(w)}
						}
						if fails {
							return es, context.Canceled // numbers of what failed are not lost
						}
						return es, nil
					})
					if (err != nil) != fails {
						t.Error(err)
					}
					if !fails {
						wrote[w] += count
					}
				}
			})
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()

		seen, read := start, [writers]int{}
		follow := func() int {
			es, err := db.Events(ctx, EventFilter{After: seen, Limit: 7 + rand.IntN(100)})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				if e.Seq != seen+1 {
					t.Fatalf("after %d came %d", seen, e.Seq)
				}
				seen = e.Seq
				var w int
				_, _ = fmt.Sscan(e.Message, &w)
				read[w]++
			}
			return len(es)
		}
		for running := true; running; {
			select {
			case <-woken:
			case <-done:
				running = false
			}
			for follow() > 0 {
			}
		}
		if read != wrote {
			t.Errorf("read %v\nwrote %v", read, wrote)
		}
		if last := must(db.LastSeq(ctx))(t); last != seen {
			t.Errorf("last is %d, seen %d", last, seen)
		}
	})
}

func TestEventFilters(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		vs := submit(t, db, "p", 3)
		place(t, db, vs[1].Attempt)
		if es, err := db.News(ctx, 1, []event.Kind{event.Submitted}, 1); err != nil || len(es) != 1 || es[0].Seq != 2 {
			t.Error(es, err)
		}
		for name, c := range map[string]struct {
			f    EventFilter
			want string
		}{
			"all":     {EventFilter{}, "[1 2 3 4 5]"},
			"after":   {EventFilter{After: 2}, "[3 4 5]"},
			"limit":   {EventFilter{Limit: 2}, "[1 2]"},
			"version": {EventFilter{VersionID: vs[1].ID}, "[2 4 5]"},
			"project": {EventFilter{ProjectID: "none"}, "[]"},
			"kinds":   {EventFilter{Kinds: []event.Kind{event.Decided, event.Orphan}}, "[4]"},
			"no kind": {EventFilter{Kinds: []event.Kind{}}, "[]"},
		} {
			es, err := db.Events(ctx, c.f)
			seqs := []int64{}
			for _, e := range es {
				seqs = append(seqs, e.Seq)
			}
			if got := fmt.Sprint(seqs); err != nil || got != c.want {
				t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
			}
		}
	})
}

// The hub is woken after the commit: who is woken finds the event.
func TestHubWakesAfterCommit(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		woken, cancel := db.Hub().Subscribe()
		defer cancel()
		must(db.CreateUser(t.Context(), newUser("x")))(t)
		select {
		case <-woken:
			t.Error("woken without an event")
		default:
		}
		submitted := submit(t, db, "p", 1)[0]
		<-woken
		for name, write := range map[string]func() error{
			"submit": func() error {
				_, _, err := db.Submit(t.Context(), projectID, []process.NewVersion{newVersion("p")})
				return err
			},
			"report": func() error {
				return db.Report(t.Context(), event.Event{Kind: event.Orphan, Message: "a Job of nobody"})
			},
			"attempt": func() error {
				_, err := db.UpdateAttempt(t.Context(), submitted.Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
					a.Tries++
					return nil, nil
				})
				return err
			},
		} {
			if err := write(); err != nil {
				t.Error(name, err)
			}
			select {
			case <-woken:
			default:
				t.Error("not woken when it returned:", name)
			}
		}
		if es := must(db.Events(t.Context(), EventFilter{Kinds: []event.Kind{event.Orphan}}))(t); len(es) != 1 || es[0].Actor != "system" || es[0].At.IsZero() {
			t.Errorf("%+v", es)
		}
	})
}
