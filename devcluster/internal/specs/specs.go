// Package specs reads from the command line which clusters to start.
package specs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// List collects --name and --gpus in the order in which they are written:
// --gpus belongs to the --name before it.
type List struct {
	specs    []controlplane.Spec
	nameless *int // a --gpus before any --name
}

// Finish fills in what is common to all clusters and checks the result.
func (l *List) Finish(common controlplane.Spec) ([]controlplane.Spec, error) {
	if l.nameless != nil {
		if len(l.specs) > 0 {
			return nil, fmt.Errorf("--gpus %d stands before any --name: write it after the --name that it is for", *l.nameless)
		}
		l.specs = []controlplane.Spec{{Name: defaultName, GPUs: *l.nameless}}
	}
	if len(l.specs) == 0 {
		l.specs = []controlplane.Spec{{Name: defaultName}}
	}
	seen := map[string]bool{}
	for i := range l.specs {
		spec := &l.specs[i]
		spec.Nodes, spec.CPU, spec.Memory, spec.Pods = common.Nodes, common.CPU, common.Memory, common.Pods
		spec.AuditObjects = common.AuditObjects
		if err := spec.Validate(); err != nil {
			return nil, err
		}
		if seen[spec.Name] {
			return nil, fmt.Errorf("--name %s is given twice: every cluster needs a name of its own", spec.Name)
		}
		seen[spec.Name] = true
	}
	return l.specs, nil
}

// defaultName is the cluster's when none is named.
const defaultName = "dev"

// Register adds the flags.
func (l *List) Register(flags *pflag.FlagSet) {
	flags.Var(nameFlag{l}, "name", `name of a cluster; repeat it for more (default "`+defaultName+`")`)
	flags.Var(gpusFlag{l}, "gpus", "nvidia.com/gpu of each node of the --name before it")
}

// nameFlag is --name NAME or --name NAME:gpus=N.
type nameFlag struct{ list *List }

func (f nameFlag) String() string { return "" }
func (f nameFlag) Type() string   { return "name" }

func (f nameFlag) Set(value string) error {
	name, option, found := strings.Cut(value, ":")
	spec := controlplane.Spec{Name: name}
	if found {
		number, isGPUs := strings.CutPrefix(option, "gpus=")
		gpus, err := strconv.Atoi(number)
		if !isGPUs || err != nil {
			return fmt.Errorf("%q: write NAME or NAME:gpus=NUMBER", value)
		}
		spec.GPUs = gpus
	}
	f.list.specs = append(f.list.specs, spec)
	return nil
}

// gpusFlag is --gpus N.
type gpusFlag struct{ list *List }

func (f gpusFlag) String() string { return "" }
func (f gpusFlag) Type() string   { return "number" }

func (f gpusFlag) Set(value string) error {
	gpus, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%q is not a number", value)
	}
	if n := len(f.list.specs); n > 0 {
		f.list.specs[n-1].GPUs = gpus
	} else {
		f.list.nameless = &gpus
	}
	return nil
}
