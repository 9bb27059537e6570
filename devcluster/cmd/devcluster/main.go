// Command devcluster runs throw-away Kubernetes clusters on loopback.
package main

import (
	"os"

	_ "github.com/virtual-kubelet/virtual-kubelet/node/api"
	_ "github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"

	_ "github.com/spf13/pflag"
	_ "golang.org/x/sys/unix"
	_ "k8s.io/component-base/cli"
	_ "sigs.k8s.io/yaml"
	_ "k8s.io/client-go/tools/clientcmd"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/component"
)

func main() {
	if len(os.Args) > 1 {
		cmd := component.Commands[os.Args[1]]()
		cmd.SetArgs(os.Args[2:])
		if cmd.Execute() != nil {
			os.Exit(1)
		}
	}
}
