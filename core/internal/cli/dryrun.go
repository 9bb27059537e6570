package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) dryRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dry-run [flags] [-- COMMAND ARG...]",
		Short: "Show where a process would go and why, without submitting it",
		Example: `  nagelfluh dry-run --image busybox --gpus 2
  nagelfluh dry-run -f job.yaml -o json`,
	}
	s := addSubmission(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sub, err := s.build(c, args)
		if err != nil {
			return err
		}
		api, err := c.connect()
		if err != nil {
			return err
		}
		d, err := call[client.Decision](api.DryRun(cmd.Context(), c.projectRef(), sub))
		if err != nil {
			return err
		}
		return c.print(d, func(w io.Writer) { writeDecision(w, d, "") })
	}
	return cmd
}
