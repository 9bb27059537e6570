// Package procnode makes nodes that run the command of each container as a
// local process, with everything a client of the API can see being real:
// phases, conditions, exit codes, reasons, times, logs and deletion.
//
// What is not there, because it needs root or a kernel's namespaces: images,
// volumes, networks of pods, probes, limits that bite.
package procnode

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// Command is the hidden sub-command that is all process nodes of one cluster.
const Command = "process-nodes"

// Kind is the controlplane.NodeKind of this package.
type Kind struct{}

var _ controlplane.NodeKind = Kind{}

// Programs returns one program for all nodes: they share their connections.
func (Kind) Programs(spec controlplane.Spec, paths controlplane.Paths) []child.Program {
	text, _ := json.Marshal(spec) // strings and numbers: cannot fail
	return []child.Program{{
		Name:    Command,
		Args:    []string{Command, "--dir", paths.Dir, "--spec", string(text)},
		LogFile: paths.Log(Command),
	}}
}

// Grace is short: the data is thrown away.
func (Kind) Grace() time.Duration { return 5 * time.Second }

// NewCommand returns the sub-command.
func NewCommand() *cobra.Command {
	var dir, text string
	command := &cobra.Command{
		Use:          Command,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			var spec controlplane.Spec
			if err := json.Unmarshal([]byte(text), &spec); err != nil {
				return fmt.Errorf("--spec: %w", err)
			}
			paths := controlplane.Paths{Dir: dir}
			return run(ctx, config{
				spec:       spec,
				kubeconfig: paths.UserKubeconfig(controlplane.FileNodes),
				pki:        paths.PKI(),
				podsDir:    filepath.Join(dir, "pods"),
			})
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "folder of the cluster")
	command.Flags().StringVar(&text, "spec", "", "the cluster's spec as JSON")
	return command
}
