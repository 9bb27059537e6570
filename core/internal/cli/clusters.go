package cli

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) clustersCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the clusters (admins)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.ClusterList](api.ListClusters(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) { writeClusters(w, out.Items...) })
		},
	}
	get := &cobra.Command{
		Use: "get CLUSTER", Short: "Show one cluster in full (admins)", Args: exactly(1, "a cluster's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.Cluster](api.GetCluster(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			if c.output == "table" {
				c.output = "yaml"
			}
			return c.print(out, nil)
		},
	}
	return group("clusters", "Clusters", list, get, c.clustersAdd(), c.clustersTest(), c.clustersEdit(), c.clustersRm(),
		c.clustersCordon(), c.clustersUncordon(), c.clustersTakeOver(), c.clustersHistory(), c.clustersDefault(), c.clustersChoices(), c.clustersTypes())
}

func writeClusters(w io.Writer, all ...client.Cluster) {
	row(w, "NAME", "TYPE", "HEALTH", "VERSION", "NODES", "GPUS FREE/ALL", "ACTIVE", "DEFAULT", "ORDER", "LABELS", "ID", "NOTE")
	for _, cl := range all {
		nodes, note := any("?"), cl.Observed.Message
		if cl.Observed.Capacity.Resources != nil {
			nodes = cl.Observed.Capacity.Nodes
		}
		switch {
		case !cl.Active:
			note = "retired"
		case cl.Lease.Message != "":
			note = cl.Lease.Message
		case !cl.Cordon.At.IsZero():
			note = strings.TrimSuffix("cordoned since "+cl.Cordon.At.Format(time.RFC3339)+": "+cl.Cordon.Reason, ": ")
		case cl.ServedBy == "":
			note = "no provider plugin serves its type now"
		}
		row(w, cl.Name, cl.Type, cl.Observed.Health, cl.Observed.KubernetesVersion, nodes, gpus(cl.Observed.Capacity), cl.ActiveAttempts,
			yes(cl.Default), cl.SortOrder, labels(cl.Labels), cl.ID, note)
	}
}

func (c *command) clustersDefault() *cobra.Command {
	var none bool
	cmd := &cobra.Command{Use: "default [CLUSTER]", Short: "Show the default cluster, or set it (admins)", Args: cobra.MaximumNArgs(1)}
	cmd.Flags().BoolVar(&none, "none", false, "have no default cluster: what needs one waits")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		var out client.DefaultCluster
		switch {
		case none && len(args) > 0:
			return usage("give a cluster or --none, not both")
		case none:
			out, err = call[client.DefaultCluster](api.SetDefaultCluster(cmd.Context(), client.DefaultClusterSet{}))
		case len(args) > 0:
			out, err = call[client.DefaultCluster](api.SetDefaultCluster(cmd.Context(), client.DefaultClusterSet{Cluster: args[0]}))
		default:
			out, err = call[client.DefaultCluster](api.GetDefaultCluster(cmd.Context()))
		}
		if err != nil {
			return err
		}
		return c.print(out, func(w io.Writer) { row(w, nameOr(out.ClusterName, "none"), out.ClusterID) })
	}
	return cmd
}

func (c *command) clustersChoices() *cobra.Command {
	return &cobra.Command{
		Use: "choices", Short: "List the clusters that you may choose from in a project, best first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.CandidateList](api.ListChoices(cmd.Context(), c.projectRef()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) {
				row(w, "NAME", "TYPE", "HEALTH", "VERSION", "GPUS FREE/ALL", "DEFAULT", "LABELS", "ID")
				for _, cand := range out.Items {
					row(w, cand.Name, cand.Type, cand.Health, cand.KubernetesVersion, gpus(cand.Capacity), yes(cand.Default), labels(cand.Labels), cand.ID)
				}
			})
		},
	}
}

func (c *command) clustersTypes() *cobra.Command {
	return &cobra.Command{
		Use: "types", Short: "List the cluster types that provider plugins offer (admins)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.ClusterTypeList](api.ListClusterTypes(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) {
				row(w, "TYPE", "TITLE", "PLUGIN", "SHADOWED BY", "FLAGS OF `clusters add`", "NOTE")
				for _, t := range out.Items {
					row(w, t.Type, t.Title, t.Plugin, t.ShadowedBy, describeFields(t.ConfigSchema), t.Problem)
				}
			})
		},
	}
}
