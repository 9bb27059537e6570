package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) clustersHistory() *cobra.Command {
	return &cobra.Command{
		Use: "history CLUSTER", Short: "Show how the health of a cluster went, the newest change first (admins)", Args: exactly(1, "a cluster's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.ClusterHistory](api.GetClusterHistory(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) {
				row(w, "AT", "FROM", "TO", "REASON", "MESSAGE")
				for _, ch := range out.Items {
					row(w, ch.At.Local().Format(time.DateTime), ch.From, ch.To, ch.Reason, ch.Message)
				}
			})
		},
	}
}
