package specs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

func TestFlags(t *testing.T) {
	common := controlplane.Spec{Nodes: 1, CPU: "64", Memory: "256Gi", Pods: 5000}
	named := func(name string, gpus int) controlplane.Spec {
		spec := common
		spec.Name, spec.GPUs = name, gpus
		return spec
	}
	for name, test := range map[string]struct {
		args string
		want []controlplane.Spec
		fail string
	}{
		"nothing":               {"", []controlplane.Spec{named("dev", 0)}, ""},
		"GPUs only":             {"--gpus 2", []controlplane.Spec{named("dev", 2)}, ""},
		"GPUs of the last":      {"--name a --name gpu --gpus 8", []controlplane.Spec{named("a", 0), named("gpu", 8)}, ""},
		"GPUs of the first":     {"--name gpu --gpus=8 --name a", []controlplane.Spec{named("gpu", 8), named("a", 0)}, ""},
		"both have some":        {"--name x --gpus 1 --name y --gpus 2", []controlplane.Spec{named("x", 1), named("y", 2)}, ""},
		"in the name":           {"--name a --name gpu:gpus=8", []controlplane.Spec{named("a", 0), named("gpu", 8)}, ""},
		"GPUs before the name":  {"--gpus 8 --name a", nil, "write it after the --name"},
		"no number":             {"--name a --gpus many", nil, "not a number"},
		"less than none":        {"--name a --gpus -1", nil, "use 0 or more"},
		"an option not known":   {"--name a:cpus=8", nil, "NAME:gpus=NUMBER"},
		"the same name twice":   {"--name a --name a", nil, "twice"},
		"a name with a slash":   {"--name ../a", nil, "lower-case"},
		"a name in upper case":  {"--name A", nil, "lower-case"},
		"a name with no letter": {"--name=", nil, "lower-case"},
	} {
		t.Run(name, func(t *testing.T) {
			var list List
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			list.Register(flags)
			err := flags.Parse(strings.Fields(test.args))
			var got []controlplane.Spec
			if err == nil {
				got, err = list.Finish(common)
			}
			if test.fail == "" && err != nil || test.fail != "" && (err == nil || !strings.Contains(err.Error(), test.fail)) {
				t.Fatalf("error %v; want %q", err, test.fail)
			}
			if err == nil && !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}
