package logs

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Times says where in a log the seconds begin, so that a reader may begin at one. The node's stamps are not kept otherwise.
//
// Each mark holds: all lines before its offset have earlier stamps than its second. There are at most maxMarks; a log that
// runs for longer than so many seconds with output is marked at wider steps, and a reader then gets a little more than it
// asked for, never less. Adding never changes what an earlier copy of the value sees.
type Times struct {
	step  int64 // seconds between marks; 0 and 1: every second that has output
	marks []mark
}

type mark struct{ second, offset int64 }

const maxMarks = 2048

// blind is the step of a log that goes on without stamps: its last mark stands for all that follows.
const blind = int64(1) << 40

// IsZero says whether nothing is known.
func (t Times) IsZero() bool { return len(t.marks) == 0 }

// add notes that the line at this offset is the first of its second.
func (t *Times) add(second, offset int64) {
	if n := len(t.marks); n > 0 && second < t.marks[n-1].second+max(t.step, 1) {
		return
	}
	if len(t.marks) == maxMarks {
		t.thin()
	}
	t.marks = append(t.marks, mark{second, offset})
}

// thin doubles the step until half of the room is free. Readers may hold the old marks, so they are copied.
func (t *Times) thin() {
	t.step = max(t.step, 1)
	for len(t.marks) > maxMarks/2 {
		t.step *= 2
		kept := make([]mark, 0, maxMarks)
		for _, m := range t.marks {
			if n := len(kept); n == 0 || m.second >= kept[n-1].second+t.step {
				kept = append(kept, m)
			}
		}
		t.marks = kept
	}
}

// at is the offset from which on a reader gets every line of that second and later ones; size is that of the log.
func (t Times) at(since time.Time, size int64) int64 {
	second := since.Unix()
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].second > second })
	if i == 0 {
		return 0
	}
	reach := max(t.step, 1)
	if reach > 1 {
		reach *= 2 // a mark that was dropped may have stood for a step of its own
	}
	switch {
	case second < t.marks[i-1].second+reach:
		return t.marks[i-1].offset
	case i < len(t.marks):
		return t.marks[i].offset
	default:
		return size
	}
}

// MarshalText gives the step and the marks, as "1 1772359200@0 1772359201@812": far shorter than as JSON.
func (t Times) MarshalText() ([]byte, error) {
	if t.IsZero() {
		return nil, nil
	}
	b := strconv.AppendInt(nil, max(t.step, 1), 10)
	for _, m := range t.marks {
		b = append(b, ' ')
		b = strconv.AppendInt(b, m.second, 10)
		b = append(b, '@')
		b = strconv.AppendInt(b, m.offset, 10)
	}
	return b, nil
}

// UnmarshalText reads what MarshalText gave.
func (t *Times) UnmarshalText(text []byte) error {
	*t = Times{}
	words := strings.Fields(string(text))
	if len(words) == 0 {
		return nil
	}
	step, err := strconv.ParseInt(words[0], 10, 64)
	for _, word := range words[1:] {
		var m mark
		second, offset, _ := strings.Cut(word, "@")
		if err == nil {
			m.second, err = strconv.ParseInt(second, 10, 64)
		}
		if err == nil {
			m.offset, err = strconv.ParseInt(offset, 10, 64)
		}
		t.marks = append(t.marks, m)
	}
	if err != nil {
		*t = Times{}
		return fmt.Errorf("times of a log: %w", err)
	}
	t.step = step
	return nil
}
