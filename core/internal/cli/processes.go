package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) processesCommand() *cobra.Command {
	var state, cluster, process string
	var limit int32
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the versions of a project, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := c.listVersions(cmd.Context(), api, client.ListVersionsParams{
				Project: optional(c.projectRef()), Process: optional(process), State: optional(client.State(state)), Cluster: optional(cluster),
			}, limit)
			if err != nil {
				return err
			}
			if err := c.printList(out, func(w io.Writer) { writeVersions(w, out.Items) }); err != nil || c.output != "table" {
				return err
			}
			switch {
			case len(out.Items) == 0 && state+cluster+process != "":
				c.note("no version in project %q is like that", c.projectRef())
			case len(out.Items) == 0:
				c.note("project %q has no versions yet: nagelfluh run submits one", c.projectRef())
			case out.NextCursor != "":
				c.note("there are more: --limit shows more of them, --state, --cluster and --process fewer")
			}
			return nil
		},
	}
	f := list.Flags()
	f.StringVar(&state, "state", "", "only those in this state")
	f.StringVar(&cluster, "cluster", "", "only those on this cluster, id or name")
	f.StringVar(&process, "process", "", "only those of this process, name or id")
	f.Int32Var(&limit, "limit", 50, "most versions to list")
	get := &cobra.Command{
		Use: "get VERSION|PROCESS", Short: "Show one version in full", Args: exactly(1, "a version's id or a process's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			v, err := c.version(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			if c.output == "table" {
				c.output = "yaml"
			}
			return c.print(v, nil)
		},
	}
	return group("processes", "Processes and their versions", list, get)
}

// longName is how much of a process's name a list shows; describe shows all of it.
const longName = 40

func writeVersions(w io.Writer, versions []client.Version) {
	if len(versions) == 0 {
		return
	}
	row(w, "VERSION", "PROCESS", "NO", "STATE", "EXIT", "CLUSTER", "AGE", "REASON")
	for _, v := range versions {
		state := string(v.State)
		if !v.Attempt.UnreachableSince.IsZero() {
			state += " (unreachable)"
		}
		row(w, v.ID, short(v.ProcessName, longName), v.Number, state, exitText(v.Attempt),
			short(nameOr(v.Attempt.ClusterName, v.Attempt.ClusterID), longName), age(v.CreatedAt), v.Attempt.Reason)
	}
}

func exitText(a client.Attempt) any {
	if a.ExitCode == nil {
		return ""
	}
	return *a.ExitCode
}

const pageSize = 200

// listVersions walks the pages up to a limit.
func (c *command) listVersions(ctx context.Context, api *client.Client, p client.ListVersionsParams, limit int32) (out client.VersionList, err error) {
	out.Items = []client.Version{}
	for int32(len(out.Items)) < limit {
		p.Limit = optional(min(limit-int32(len(out.Items)), pageSize))
		page, err := call[client.VersionList](api.ListVersions(ctx, &p))
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, page.Items...)
		out.NextCursor, p.Cursor = page.NextCursor, optional(page.NextCursor)
		if page.NextCursor == "" {
			break
		}
	}
	return out, nil
}
