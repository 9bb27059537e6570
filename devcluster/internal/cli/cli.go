// Package cli is the command line of devcluster.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/component"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/containernode"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/procnode"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/supervisor"
)

// Main runs the command in os.Args and returns the exit code.
func Main() int {
	if len(os.Args) > 1 {
		if build, found := hidden()[os.Args[1]]; found {
			child.DieWithParent()
			command := build()
			command.SetArgs(os.Args[2:])
			if err := command.Execute(); err != nil {
				fmt.Fprintln(os.Stderr, "Error:", err)
				return 1
			}
			return 0
		}
	}
	// The first signal stops in order, the second ends at once (children go
	// along, as with SIGKILL).
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		return 1
	}
	return 0
}

// hidden are the programs of which a cluster consists.
func hidden() map[string]func() *cobra.Command {
	commands := map[string]func() *cobra.Command{procnode.Command: procnode.NewCommand, containernode.Command: containernode.NewCommand}
	for name, build := range component.Commands {
		commands[name] = build
	}
	return commands
}

func root() *cobra.Command {
	command := &cobra.Command{
		Use:   "devcluster",
		Short: "Throw-away Kubernetes clusters on loopback",
		Long: `devcluster runs real Kubernetes control planes on loopback, without root, containers
or network. The nodes run the command of each container as a local process; with
--containers they are real kubelets with containerd, which need Linux and root.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var dir string
	command.PersistentFlags().StringVar(&dir, "dir", supervisor.DefaultDir(), "folder for everything that the clusters need; one `devcluster up` at a time uses it")
	command.AddCommand(
		upCommand(&dir), downCommand(&dir), statusCommand(&dir),
		clusterCommand(&dir, "restart", "Stop and start a cluster on the same ports and data"),
		clusterCommand(&dir, "stop-apiserver", "Stop the API server of a cluster; pods go on running"),
		clusterCommand(&dir, "start-apiserver", "Start it again on the same port and data"),
	)
	return command
}

func clusterCommand(dir *string, action, short string) *cobra.Command {
	return &cobra.Command{
		Use:   action + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			client, err := supervisor.Dial(*dir)
			if err != nil {
				return err
			}
			return client.Cluster(command.Context(), args[0], action)
		},
	}
}
