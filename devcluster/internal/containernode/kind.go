// Package containernode makes a node of a real kubelet with containerd and
// runc: images are pulled, limits bite, logs are rotated and pods are evicted.
// It needs Linux and root; everything it makes is below the cluster's folder,
// but for a bridge and the containers' cgroups, and goes with the cluster.
package containernode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// Command is the hidden sub-command that is the container node of one cluster.
const Command = "container-node"

// Kind is the controlplane.NodeKind of this package.
type Kind struct {
	bin string // folder of containerd's binaries
}

var _ controlplane.NodeKind = Kind{}

// New finds what the nodes need: containerd's binaries in the folder
// "containerd" beside this one, and what the system has to have.
func New() (Kind, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return Kind{}, errors.New("nodes with containers need Linux and root")
	}
	self, err := os.Executable()
	if err != nil {
		return Kind{}, fmt.Errorf("find this binary: %w", err)
	}
	k := Kind{filepath.Join(filepath.Dir(self), "containerd")}
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if _, err := os.Stat(filepath.Join(k.bin, name)); err != nil {
			missing = append(missing, name)
		}
	}
	for _, name := range []string{"runc", "iptables", "ip", busybox} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	for _, name := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(cniBin, name)); err != nil {
			missing = append(missing, filepath.Join(cniBin, name))
		}
	}
	if len(missing) > 0 {
		return Kind{}, fmt.Errorf("nodes with containers: missing %s: run devcluster/containerd.sh, which builds and installs them", strings.Join(missing, ", "))
	}
	return k, nil
}

// Place gives each cluster an address of its own for its node. It is no
// loopback address: a kubelet refuses one.
func (Kind) Place(specs []controlplane.Spec) error {
	taken := map[string]bool{}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("find a free network for the nodes: %w", err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			taken[n.IP.String()] = true
		}
	}
	next := 0
	for i := range specs {
		s := &specs[i]
		if s.GPUs > 0 || s.Nodes > 1 {
			return fmt.Errorf("cluster %s: nodes with containers are one a cluster, and have the GPUs that the machine has: leave out --gpus and --nodes", s.Name)
		}
		for ; taken[address(next)]; next++ {
			if next == 255 {
				return errors.New("no network 10.213.0.0/24 to 10.213.254.0/24 is free for the nodes: stop other clusters")
			}
		}
		s.NodeAddress = address(next)
		next++
	}
	return nil
}

func address(n int) string { return fmt.Sprintf("10.213.%d.1", n) }

// Programs returns the one program that sees to containerd and the kubelet.
func (k Kind) Programs(spec controlplane.Spec, paths controlplane.Paths) []child.Program {
	text, _ := json.Marshal(node{Spec: spec, Dir: paths.Dir, Bin: k.bin}) // strings and numbers: cannot fail
	return []child.Program{{Name: Command, Args: []string{Command, string(text)}, LogFile: paths.Log(Command)}}
}

// Grace is enough to kill every container and to unmount what it had.
func (Kind) Grace() time.Duration { return 25 * time.Second }

// NewCommand returns the sub-command.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:          Command,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			var n node
			if err := json.Unmarshal([]byte(args[0]), &n); err != nil {
				return fmt.Errorf("the node's description: %w", err)
			}
			return n.run(ctx)
		},
	}
}
