package app

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

type asked struct{ times int }

func (a *asked) Connect(context.Context, cluster.Cluster) (kube.Connection, error) {
	a.times++
	return kube.Connection{}, nil
}

// A config that cannot be decrypted is said to be so, and no provider is asked to do without one.
func TestUnreadableConfig(t *testing.T) {
	a := &asked{}
	if _, err := (readable{a}).Connect(t.Context(), cluster.Cluster{}); !errors.Is(err, errUnreadable) || a.times != 0 {
		t.Error(err, a.times)
	}
	if _, err := (readable{a}).Connect(t.Context(), cluster.Cluster{ProviderConfig: json.RawMessage("{}")}); err != nil || a.times != 1 {
		t.Error(err, a.times)
	}
}
