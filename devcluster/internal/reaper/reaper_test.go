package reaper

import (
	"maps"
	"strings"
	"testing"
)

func TestWatch(t *testing.T) {
	got := watch(strings.NewReader("+100\n+200\n-100\n\n+1\n+0\n+-5\n+x\n-999\n+300"))
	want := map[int]bool{200: true, 300: true}
	if !maps.Equal(got, want) {
		t.Errorf("left are %v; want %v", got, want)
	}
}
