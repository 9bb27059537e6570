package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

type kueueFlags struct {
	on     bool
	binary string
}

func (k *kueueFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&k.on, "kueue", false, "run Kueue in each cluster")
	flags.StringVar(&k.binary, "kueue-bin", "", "Kueue's binary (default: kueue beside this one)")
}

func (k *kueueFlags) addon() (func(context.Context, *child.Spawner, *controlplane.Cluster) error, error) {
	if !k.on {
		return nil, nil
	}
	return nil, errors.New("--kueue is not there yet")
}
