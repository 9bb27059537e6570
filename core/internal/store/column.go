package store

import (
	"encoding/json"
	"strings"
	"time"
)

// micros is a time as it is stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func microsOrNull(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	n := micros(*t)
	return &n
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

func timeOrNil(n *int64) *time.Time {
	if n == nil {
		return nil
	}
	t := timeOf(*n)
	return &t
}

// text makes words that come from elsewhere (a cluster, a plugin) fit for a text column: PostgreSQL takes neither NUL
// nor broken UTF-8, and what happened must be stored all the same.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// toJSON cannot fail: it is given maps, lists and structs of plain values only.
func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("store: " + err.Error())
	}
	return string(b)
}

// labelsJSON writes a nil map as an empty object.
func labelsJSON(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	return toJSON(m)
}

func labelsOf(s string) map[string]string {
	if s == "{}" {
		return nil
	}
	var m map[string]string
	fromJSON(s, &m)
	return m
}

// fromJSON reads what toJSON wrote. What does not parse was written by something else; the column's own tests say so,
// and a reader gets the zero value instead of losing the whole row.
func fromJSON(s string, v any) {
	if s != "" {
		_ = json.Unmarshal([]byte(s), v)
	}
}
