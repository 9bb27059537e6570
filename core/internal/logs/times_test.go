package logs

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever the log, a reader gets every line of the second it asks for, and no more than that as long as all seconds are marked.
func TestTimesNeverBeginLate(t *testing.T) {
	for _, lines := range []int{0, 1, 500, 20_000, 200_000} {
		rnd := rand.New(rand.NewPCG(uint64(lines), 1))
		var times Times
		stamps := make([]int64, lines) // one byte a line
		largest := int64(0)
		for i := range stamps {
			stamps[i] = t0.Unix() + int64(i/3) + rnd.Int64N(3)
			if stamps[i] > largest {
				largest = stamps[i]
				times.add(stamps[i], int64(i))
			}
		}
		text, err := times.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var read Times
		if err := read.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		if len(times.marks) > maxMarks {
			t.Errorf("%d marks", len(times.marks))
		}
		for range 300 {
			second := t0.Unix() - 5 + rnd.Int64N(int64(lines/3)+20)
			first := lines // the first line that must be given
			for i, s := range stamps {
				if s >= second {
					first = i
					break
				}
			}
			got := read.at(time.Unix(second, 5e8), int64(lines))
			if got > int64(first) {
				t.Fatalf("%d lines, second %d: begins at %d, behind line %d", lines, second, got, first)
			}
			if exact := lines <= 3*maxMarks; exact && got != int64(first) {
				t.Fatalf("%d lines, second %d: begins at %d, want %d", lines, second, got, first)
			}
			if slack := int64(first) - got; slack > 3*4*times.step+3 {
				t.Fatalf("%d lines, step %d: begins %d lines before what is asked for", lines, times.step, slack)
			}
		}
	}
	var times Times
	if err := times.UnmarshalText([]byte("1 rubbish")); err == nil {
		t.Error("rubbish was read")
	}
}
