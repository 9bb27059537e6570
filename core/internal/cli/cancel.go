package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel VERSION|PROCESS", Short: "Stop a version", Args: exactly(1, "a version's id or a process's name"),
		Long: "Ask for a version to be stopped. It is cancelled once its cluster confirms that Job and pods are gone. Asking again is fine.",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			v, err := c.version(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			v, err = call[client.Version](api.CancelVersion(cmd.Context(), v.ID))
			if err != nil {
				return err
			}
			return c.print(v, func(w io.Writer) { row(w, v.ProcessName, "version "+v.ID, stands(v.Attempt)) })
		},
	}
}
