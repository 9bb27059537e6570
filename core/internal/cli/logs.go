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
	var attempt, restart int32
	var container, pod, since string
	var tail int64
	var allAttempts, allContainers bool
	cmd := &cobra.Command{
		Use: "logs VERSION|PROCESS", Short: "Show the log of a version, live or from the archive", Args: exactly(1, "a version's id or a process's name"),
		Long: "Show the log of a version. The name of a process means its latest version. With --follow the exit code is that of the job, as\n" +
			"with `nagelfluh run`.",
	}
	f := cmd.Flags()
	f.BoolVarP(&followIt, "follow", "f", false, "go on until the job has ended")
	f.Int32Var(&attempt, "attempt", 0, "number of the attempt (default: the latest)")
	f.BoolVar(&allAttempts, "all-attempts", false, "the logs of all attempts, one after the other")
	f.StringVar(&container, "container", "", "name of the container (default: main, or the init container that failed)")
	f.BoolVar(&allContainers, "all-containers", false, "every container with its init containers and sidecars, one after the other; not with --follow")
	f.StringVar(&pod, "pod", "", "name of the pod, where there were several (default: all in order)")
	f.Int32Var(&restart, "restart", 0, "instance of a container that was restarted, from 0 (default: all in order)")
	f.Int64Var(&tail, "tail", 0, "only the last so many lines (default: all)")
	f.StringVar(&since, "since", "", "only what came since: a time (2026-11-30T08:00:00Z), or how long ago (10m)")
	cmd.MarkFlagsMutuallyExclusive("attempt", "all-attempts")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	cmd.MarkFlagsMutuallyExclusive("follow", "all-containers")
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
		p := &client.StreamLogsParams{
			Attempt: optional(attempt), AllAttempts: optional(allAttempts), Container: optional(container), AllContainers: optional(allContainers),
			Pod: optional(pod), Since: optional(since),
		}
		if cmd.Flags().Changed("restart") {
			p.Restart = &restart
		}
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
