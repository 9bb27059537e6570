package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// clusterFlags are the flags that clusters of every type have.
type clusterFlags struct {
	name, kind, namespace, queue, maxRuntime, ifMatch string
	labels                                            []string
	order                                             int32
	active, noTest, confirm                           bool
	config                                            providerConfig
}

func (c *clusterFlags) define(f *pflag.FlagSet) {
	f.StringVar(&c.kind, "type", "", "cluster `TYPE`, one of those that 'nagelfluh clusters types' lists")
	f.StringVar(&c.namespace, "namespace", "", "Kubernetes namespace of the Jobs (empty: the server's default)")
	f.StringArrayVar(&c.labels, "label", nil, "label NAME=VALUE, which selectors see (repeatable)")
	f.Int32Var(&c.order, "sort-order", 0, "place in the list; smaller comes first")
	f.BoolVar(&c.active, "active", true, "false: nothing is placed there")
	f.StringVar(&c.queue, "queue", "", "Kueue LocalQueue of the Jobs (empty: none)")
	f.StringVar(&c.maxRuntime, "max-runtime", "", "most running time of a Job, such as 24h (0: no limit)")
	f.BoolVar(&c.noTest, "no-test", false, "store the connection although the cluster cannot be reached now")
	f.BoolVar(&c.confirm, "confirm-identity", false, "yes, it is another cluster than before, or one that has an entry already")
}

// seconds returns the limit; 0: none.
func (c *clusterFlags) seconds() (int64, error) {
	if c.maxRuntime == "" || c.maxRuntime == "0" {
		return 0, nil
	}
	n, err := parseSeconds(c.maxRuntime)
	if err != nil {
		return 0, usage("--max-runtime: %v", err)
	}
	return n, nil
}

func (c *command) clustersAdd() *cobra.Command {
	var in clusterFlags
	cmd := &cobra.Command{
		Use: "add NAME --type TYPE [flags of the type]", Short: "Add a cluster (admins)",
		Long: "Add a cluster. What a type needs to connect has flags of its own, drawn from its provider plugin: `nagelfluh clusters types`\n" +
			"lists them. Flags for long or secret fields take a file.",
		Example: "  nagelfluh clusters add gpu --type kubeconfig --kubeconfig ./gpu.yaml --label accelerator=a100",
	}
	in.define(cmd.Flags())
	kind := func(context.Context, *client.Client, []string) (string, error) {
		if in.kind == "" {
			return "", usage("no type: give --type; `nagelfluh clusters types` lists them")
		}
		return in.kind, nil
	}
	return c.typed(cmd, &in.config, kind, func(ctx context.Context, api *client.Client, args []string) error {
		if len(args) != 1 {
			return usage("clusters add wants one name, got %d words", len(args))
		}
		config, err := in.config.build(cmd.Flags(), c.In)
		if err != nil {
			return err
		}
		seconds, err := in.seconds()
		if err != nil {
			return err
		}
		body := client.ClusterCreate{
			Name: args[0], Type: in.kind, ProviderConfig: config, Namespace: in.namespace, SortOrder: in.order, Active: &in.active,
			QueueName: in.queue, MaxRuntimeSeconds: seconds,
		}
		if err := pairs("label", in.labels, &body.Labels); err != nil {
			return err
		}
		p := &client.CreateClusterParams{ConfirmIdentity: optional(in.confirm)}
		if in.noTest {
			p.ConnectionTest = optional(client.CreateClusterParamsConnectionTestSkip)
		}
		out, err := call[client.Cluster](api.CreateCluster(ctx, p, body))
		return c.changed(out, c.withReport(err))
	})
}

func (c *command) clustersEdit() *cobra.Command {
	var in clusterFlags
	cmd := &cobra.Command{
		Use: "edit CLUSTER [flags]", Short: "Change a cluster (admins); only what is given changes",
		Long: "Change a cluster. Only what is given changes; the provider config is replaced whole. The flags of the cluster's type are those\n" +
			"of `nagelfluh clusters add`.",
	}
	in.define(cmd.Flags())
	cmd.Flags().StringVar(&in.name, "name", "", "its new name")
	cmd.Flags().StringVar(&in.ifMatch, "if-match", "", "change it only when it still has this revision")
	kind := func(ctx context.Context, api *client.Client, args []string) (string, error) {
		if in.kind != "" || len(args) != 1 {
			return in.kind, nil
		}
		now, err := call[client.Cluster](api.GetCluster(ctx, args[0]))
		return now.Type, err
	}
	return c.typed(cmd, &in.config, kind, func(ctx context.Context, api *client.Client, args []string) error {
		if len(args) != 1 {
			return usage("clusters edit wants one cluster, got %d words", len(args))
		}
		body, err := in.patch(cmd.Flags(), c.In)
		if err != nil {
			return err
		}
		p := &client.UpdateClusterParams{ConfirmIdentity: optional(in.confirm)}
		if in.noTest {
			p.ConnectionTest = optional(client.UpdateClusterParamsConnectionTestSkip)
		}
		if in.ifMatch != "" {
			p.IfMatch = optional(fmt.Sprintf("%q", in.ifMatch))
		}
		out, err := call[client.Cluster](api.UpdateCluster(ctx, args[0], p, body))
		return c.changed(out, c.withReport(err))
	})
}

func (c *clusterFlags) patch(f *pflag.FlagSet, in io.Reader) (body client.ClusterPatch, err error) {
	text := func(flag string, v *string, dst **string) {
		if f.Changed(flag) {
			*dst = v
		}
	}
	text("name", &c.name, &body.Name)
	text("type", &c.kind, &body.Type)
	text("namespace", &c.namespace, &body.Namespace)
	text("queue", &c.queue, &body.QueueName)
	if f.Changed("sort-order") {
		body.SortOrder = &c.order
	}
	if f.Changed("active") {
		body.Active = &c.active
	}
	if f.Changed("max-runtime") {
		seconds, err := c.seconds()
		if err != nil {
			return body, err
		}
		body.MaxRuntimeSeconds = json.RawMessage("null")
		if seconds > 0 {
			body.MaxRuntimeSeconds = json.RawMessage(strconv.FormatInt(seconds, 10))
		}
	}
	if f.Changed("label") {
		set := map[string]string{}
		if err := pairs("label", c.labels, &set); err != nil {
			return body, err
		}
		body.Labels = &set
	}
	body.ProviderConfig, err = c.config.build(f, in)
	return body, err
}

func (c *command) changed(out client.Cluster, err error) error {
	if err != nil {
		return err
	}
	for _, w := range out.Warnings {
		c.note("warning: %s", w)
	}
	return c.print(out, func(w io.Writer) { writeClusters(w, out) })
}
