package logs

import (
	"bytes"
	"time"
)

// stampMax is the length of the longest stamp: 2006-01-02T15:04:05.123456789+07:00.
const stampMax = 35

const secondLen = len("2006-01-02T15:04:05")

// stamps reads the stamps before the lines of one answer. Most lines share their second with the line before; of those
// only the fraction is parsed. The zero value is ready.
type stamps struct {
	second [secondLen]byte // the last one seen in UTC
	nanos  int64           // its Unix time
	known  bool
}

// cut reads the stamp at the start of a line. n is how many bytes it takes with the space behind it.
func (s *stamps) cut(line []byte) (stamp int64, n int, ok bool) {
	if stamp, n, ok = s.again(line); ok {
		return stamp, n, true
	}
	i := bytes.IndexAny(line[:min(len(line), stampMax+1)], " \n")
	if i < 0 || line[0] < '0' || line[0] > '9' {
		return 0, 0, false
	}
	var t time.Time
	if err := t.UnmarshalText(line[:i]); err != nil {
		return 0, 0, false
	}
	if stamp = t.UnixNano(); line[i-1] == 'Z' {
		copy(s.second[:], line)
		s.nanos, s.known = stamp-int64(t.Nanosecond()), true
	}
	if line[i] == ' ' {
		i++
	}
	return stamp, i, true
}

// again reads a stamp of the second seen last: the digits of its fraction, a Z and a space.
func (s *stamps) again(line []byte) (stamp int64, n int, ok bool) {
	if !s.known || len(line) < secondLen || !bytes.Equal(line[:secondLen], s.second[:]) || line[min(secondLen, len(line)-1)] != '.' {
		return 0, 0, false
	}
	fraction, unit := int64(0), int64(time.Second)
	for i := secondLen + 1; i < len(line); i++ {
		switch c := line[i]; {
		case c >= '0' && c <= '9' && unit > 1:
			unit /= 10
			fraction += int64(c-'0') * unit
		case c == 'Z' && unit < int64(time.Second) && i+1 < len(line) && line[i+1] == ' ':
			return s.nanos + fraction, i + 2, true
		default:
			return 0, 0, false
		}
	}
	return 0, 0, false
}
