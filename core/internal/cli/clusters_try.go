package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) clustersTest() *cobra.Command {
	var kind, namespace, queue string
	var config providerConfig
	cmd := &cobra.Command{
		Use: "test [CLUSTER] [--type TYPE and flags of the type]", Short: "Test the connection of a cluster, or one that is not stored (admins)",
		Long: "Test the connection of a cluster as it is stored, or with the given flags in place of what is stored. Without a cluster, test what the\n" +
			"flags of `nagelfluh clusters add` say. Nothing is changed anywhere. The exit code is 1 when jobs could not run.",
		Example: "  nagelfluh clusters test gpu\n  nagelfluh clusters test --type kubeconfig --kubeconfig ./gpu.yaml --namespace batch",
	}
	f := cmd.Flags()
	f.StringVar(&kind, "type", "", "cluster `TYPE`, one of those that 'nagelfluh clusters types' lists")
	f.StringVar(&namespace, "namespace", "", "Kubernetes namespace of the Jobs")
	f.StringVar(&queue, "queue", "", "Kueue LocalQueue of the Jobs")
	kindOf := func(ctx context.Context, api *client.Client, args []string) (string, error) {
		switch {
		case kind != "":
			return kind, nil
		case len(args) == 0:
			return "", usage("give a cluster, or --type; `nagelfluh clusters types` lists the types")
		}
		now, err := call[client.Cluster](api.GetCluster(ctx, args[0]))
		return now.Type, err
	}
	return c.typed(cmd, &config, kindOf, func(ctx context.Context, api *client.Client, args []string) error {
		doc, err := config.build(f, c.In)
		if err != nil {
			return err
		}
		var r client.ConnectionReport
		switch len(args) {
		case 0:
			r, err = call[client.ConnectionReport](api.TestConnection(ctx, client.ConnectionTestRequest{
				Type: kind, ProviderConfig: doc, Namespace: namespace, QueueName: queue,
			}))
		case 1:
			body := client.ClusterTestRequest{ProviderConfig: doc}
			for flag, set := range map[string]func(){
				"type": func() { body.Type = &kind }, "namespace": func() { body.Namespace = &namespace }, "queue": func() { body.QueueName = &queue },
			} {
				if f.Changed(flag) {
					set()
				}
			}
			r, err = call[client.ConnectionReport](api.TestClusterConnection(ctx, args[0], body))
		default:
			return usage("clusters test wants one cluster at most, got %d words", len(args))
		}
		if err != nil {
			return err
		}
		if err := c.print(r, func(w io.Writer) { writeReport(w, r, c.marks()) }); err != nil {
			return err
		}
		if !r.Ok {
			return &exit{code: ExitError} // the report has said why
		}
		return nil
	})
}

func (c *command) clustersRm() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm CLUSTER", Short: "Remove a cluster (admins)", Args: exactly(1, "a cluster's name or id"),
		Long: "Remove a cluster. Refused while attempts live there. With --force they are ended first: their Jobs are deleted if the cluster answers\n" +
			"within seconds, and the table says for each what became of it and which may still run.",
	}
	cmd.Flags().BoolVar(&force, "force", false, "end what lives there instead of refusing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		p := &client.DeleteClusterParams{}
		if !force {
			_, err = call[struct{}](api.DeleteCluster(cmd.Context(), args[0], p))
			return err
		}
		p.Force = &force
		out, err := call[client.ClusterRemoval](api.DeleteCluster(cmd.Context(), args[0], p))
		if err != nil {
			return err
		}
		return c.print(out, func(w io.Writer) { writeRemoval(w, out) })
	}
	return cmd
}

func writeRemoval(w io.Writer, out client.ClusterRemoval) {
	row(w, "CLUSTER", "ANSWERED", "ATTEMPTS ENDED")
	row(w, out.ClusterName, yesNo(out.Reached), len(out.Attempts))
	if len(out.Attempts) == 0 {
		return
	}
	row(w, "")
	row(w, "VERSION", "WAS", "STATE", "MAY STILL RUN", "JOB")
	for _, a := range out.Attempts {
		row(w, a.VersionID, a.Was, a.State, yesNo(a.MayStillRun), a.Namespace+"/"+a.JobName)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (c *command) clustersCordon() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cordon CLUSTER", Short: "Place nothing new on a cluster (admins)", Args: exactly(1, "a cluster's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			return c.changed(call[client.Cluster](api.CordonCluster(cmd.Context(), args[0], client.CordonSet{Reason: reason})))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the others")
	return cmd
}

func (c *command) clustersUncordon() *cobra.Command {
	return &cobra.Command{
		Use: "uncordon CLUSTER", Short: "Place on a cluster again (admins)", Args: exactly(1, "a cluster's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			return c.changed(call[client.Cluster](api.UncordonCluster(cmd.Context(), args[0])))
		},
	}
}

func (c *command) clustersTakeOver() *cobra.Command {
	return &cobra.Command{
		Use: "take-over CLUSTER", Short: "Confirm that a cluster's job namespace is this installation's (admins)", Args: exactly(1, "a cluster's name or id"),
		Long: `Confirm that a cluster's job namespace is this installation's.

The Lease there was written by another database: another installation's, or a copy of this one's. Make sure that no server
works on that database any more, or that it may lose the namespace: it stops writing there when it sees the change.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			return c.changed(call[client.Cluster](api.TakeOverCluster(cmd.Context(), args[0])))
		},
	}
}
