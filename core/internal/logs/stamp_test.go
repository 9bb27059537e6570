package logs

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// plainCut is what cut does without memory of the line before.
func plainCut(line []byte) (int64, int, bool) { return new(stamps).cut(line) }

// Whatever line came before, a stamp is read as if it were the first.
func TestStampsRememberNothingThatMatters(t *testing.T) {
	lines := []string{
		"2026-11-30T10:00:00.123456789Z a", "2026-11-30T10:00:00.5Z b", "2026-11-30T10:00:00Z c", "2026-11-30T10:00:00.Z d",
		"2026-11-30T10:00:00.1234567891Z e", "2026-11-30T10:00:00.5+07:00 f", "2026-11-30T10:00:00.5Z\n", "2026-11-30T10:00:00.5Z",
		"2026-11-30T10:00:00.5", "2026-11-30T10:00:00.", "2026-11-30T10:00:00", "2026-11-30T10:00:00.5Zx g", "2026-11-30T10:00:00,5Z h",
		"2026-11-30T10:00:01.000000001Z i", "1999-11-30T10:00:01.9Z j", "2026-11-30T10:00:00.000000000Z k", "no stamp", " ", "\n", "2026 l",
	}
	for _, before := range lines {
		for _, line := range lines {
			var s stamps
			s.cut([]byte(before))
			stamp, n, ok := s.cut([]byte(line))
			if stamp1, n1, ok1 := plainCut([]byte(line)); stamp != stamp1 || n != n1 || ok != ok1 {
				t.Errorf("%q behind %q: %d %d %v, alone %d %d %v", line, before, stamp, n, ok, stamp1, n1, ok1)
			}
		}
	}
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	var s stamps
	for i := range 3000 {
		want := at.Add(time.Duration(i) * 1_234_567)
		line := []byte(want.Format(time.RFC3339Nano) + " text")
		if stamp, n, ok := s.cut(line); !ok || stamp != want.UnixNano() || !bytes.Equal(line[n:], []byte("text")) {
			t.Fatal(fmt.Sprint(string(line), stamp, n, ok))
		}
	}
}
