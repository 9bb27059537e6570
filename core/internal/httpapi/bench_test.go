package httpapi_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func BenchmarkSubmit(b *testing.B) {
	w := newWorldFor(b)
	body := submission(limit("1"))
	for b.Loop() {
		if a := w.do("POST", submit, body); a.status != 201 {
			b.Fatal(a.status)
		}
	}
}

func BenchmarkBulk1000(b *testing.B) {
	w := newWorldFor(b)
	items := make([]any, 1000)
	for i := range items {
		items[i] = submission(set("name", fmt.Sprint("p", i)), limit("1"))
	}
	for b.Loop() {
		if a := w.do("POST", submit+"/bulk", object{"items": items}); a.status != 201 {
			b.Fatal(a.status)
		}
	}
}

// BenchmarkEventTo100Streams is the time from a submission's request until each of 100 open streams has its event.
func BenchmarkEventTo100Streams(b *testing.B) {
	w := newWorldFor(b)
	streams := make([]*stream, 100)
	for i := range streams {
		streams[i] = w.open("/api/v1/events")
		streams[i].line()
	}
	body := submission()
	for b.Loop() {
		if a := w.do("POST", submit, body); a.status != 201 {
			b.Fatal(a.status)
		}
		for _, s := range streams {
			if e, ok := s.next(); !ok || e.name != "submitted" {
				b.Fatalf("got %+v", e)
			}
		}
	}
}

// BenchmarkListOf200Clusters is the list and one detail of 200 clusters, of which 50 are dead; the aim is 50 ms for 99 in
// 100 of them.
func BenchmarkListOf200Clusters(b *testing.B) {
	w := newWorldFor(b)
	w.twoHundred()
	var took []time.Duration
	for b.Loop() {
		for _, path := range []string{clusters, clusters + "/dead-001"} {
			began := time.Now()
			if a := w.do("GET", path, nil); a.status != 200 {
				b.Fatal(a.status)
			}
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
