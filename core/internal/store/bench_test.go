package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// BenchmarkUpdateAttempt has 16 callers change an attempt of their own, with an event each.
func BenchmarkUpdateAttempt(b *testing.B) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		b.Run(string(d), func(b *testing.B) {
			const callers = 16
			db := open(b, newURL(b, d))
			vs := submit(b, db, "p", callers)
			for _, v := range vs {
				place(b, db, v.Attempt)
			}
			ctx := b.Context()
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for n := c; n < b.N; n += callers {
						if _, err := db.UpdateAttempt(ctx, vs[c].Attempt.ID, func(a *process.Attempt) ([]event.Event, error) {
							a.Reason = fmt.Sprint("reason ", n)
							a.State = process.Queued
							if n/callers%2 == 1 {
								a.State = process.Running
							}
							return []event.Event{{Kind: event.StateChanged, Message: a.Reason}}, nil
						}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}

// BenchmarkSubmit stores versions in bulks of 1, 100 and 1000.
func BenchmarkSubmit(b *testing.B) {
	for _, d := range []migrations.Dialect{migrations.SQLite, migrations.PostgreSQL} {
		for _, bulk := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/bulk=%d", d, bulk), func(b *testing.B) {
				db := open(b, newURL(b, d))
				b.ResetTimer()
				for range b.N {
					submit(b, db, "p", bulk)
				}
				b.ReportMetric(float64(b.N*bulk)/b.Elapsed().Seconds(), "versions/s")
			})
		}
	}
}
