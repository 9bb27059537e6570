package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/supervisor"
)

func statusCommand(dir *string) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the running clusters",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := supervisor.Dial(*dir)
			if err != nil {
				return err
			}
			report, err := client.Status(command.Context())
			if err != nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(command.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(report)
			}
			table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tSTATE\tNODES\tGPUS\tUP\tSERVER\tKUBECONFIG")
			for _, c := range report.Clusters {
				up := time.Since(c.StartedAt).Round(time.Second)
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", c.Name, c.State, c.Nodes, c.GPUs*c.Nodes, up, c.Server, c.Kubeconfig)
			}
			return table.Flush()
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop all clusters of a folder and remove their files",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := supervisor.Dial(*dir)
			if err == nil {
				err = client.Down(command.Context())
			}
			if errors.Is(err, supervisor.ErrNotRunning) {
				// What was asked for is the case.
				fmt.Fprintln(command.ErrOrStderr(), "devcluster: nothing is running in", *dir)
				return nil
			}
			return err
		},
	}
}
