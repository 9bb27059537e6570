package selector_test

import (
	"math"
	"testing"

	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

func TestBaseUnits(t *testing.T) {
	tests := []struct {
		resource, quantity string
		want               int64
	}{
		{"cpu", "1", 1000}, {"cpu", "500m", 500}, {"cpu", "0.1", 100}, {"cpu", "1u", 1}, {"cpu", "2k", 2_000_000},
		{"memory", "1Gi", 1 << 30}, {"memory", "1.5Gi", 3 << 29}, {"memory", "100M", 100_000_000}, {"memory", "1500m", 2},
		{"memory", "1e3", 1000}, {"memory", "12E-1", 2}, {"memory", "2E", 2e18}, {"memory", "8Ei", math.MaxInt64},
		{"nvidia.com/gpu", "8", 8}, {"nvidia.com/gpu", "0", 0}, {"nvidia.com/gpu", "-3", -3}, {"memory", "-1500m", -1},
	}
	for _, test := range tests {
		if got, err := selector.BaseUnits(test.resource, test.quantity); err != nil || got != test.want {
			t.Errorf("%s %s: got %d, %v; want %d", test.resource, test.quantity, got, err, test.want)
		}
	}
	for _, bad := range []string{"", "many", "1 Gi", "1GiB", "--1", "1/2", "0x10", "1e", "1e99999", "Gi", "1.2.3", "٣"} {
		if got, err := selector.BaseUnits("memory", bad); err == nil {
			t.Errorf("%q became %d", bad, got)
		}
	}
}
