package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) logsCommand() *cobra.Command {
	var followIt bool
	var attempt int32
	var container string
	var tail int64
	cmd := &cobra.Command{
		Use: "logs VERSION|PROCESS", Short: "Show the log of a version, live or from the archive", Args: exactly(1, "a version's id or a process's name"),
		Long: "Show the log of a version. The name of a process means its latest version. With --follow the exit code is that of the job, as\n" +
			"with `nagelfluh run`.",
	}
	f := cmd.Flags()
	f.BoolVarP(&followIt, "follow", "f", false, "go on until the job has ended")
	f.Int32Var(&attempt, "attempt", 0, "number of the attempt (default: the latest)")
	f.StringVar(&container, "container", "", "name of the container (default: main, or the init container that failed)")
	f.Int64Var(&tail, "tail", 0, "only the last so many lines (default: all)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		v, err := c.version(ctx, api, args[0])
		if err != nil {
			return err
		}
		p := &client.StreamLogsParams{Attempt: optional(attempt), Container: optional(container)}
		if cmd.Flags().Changed("tail") {
			p.Tail = &tail
		}
		if followIt {
			end, err := c.followLog(ctx, api, v.ID, p)
			if err != nil {
				return &exit{code: ExitDetached, err: err}
			}
			return ending(end)
		}
		resp, err := api.StreamLogs(ctx, v.ID, p)
		if err != nil {
			return unreachable(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			raw, _ := io.ReadAll(resp.Body)
			return failure(resp, raw)
		}
		_, err = io.Copy(c.Out, resp.Body)
		return err
	}
	return cmd
}
