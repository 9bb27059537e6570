package httpapi_test

import (
	"fmt"
	"testing"
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
