package procnode

import (
	"testing"
	"time"
)

func TestParseImage(t *testing.T) {
	for name, want := range map[string]image{
		"busybox":                           {},
		"nagelfluh.test/anything":           {},
		"example.com/nagelfluh.test/oom":    {},
		"nagelfluh.test/never-pulled":       {neverPulled: true},
		"nagelfluh.test/never-pulled:v1":    {neverPulled: true},
		"nagelfluh.test/invalid-name-UPPER": {invalidName: true},
		"nagelfluh.test/oom":                {oom: true},
		"nagelfluh.test/slow-pull:250ms":    {pullTime: 250 * time.Millisecond},
		"nagelfluh.test/slow-pull":          {pullTime: 5 * time.Second},
	} {
		if got := parseImage(name); got != want {
			t.Errorf("%s: %+v; want %+v", name, got, want)
		}
	}
}
