package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) projectsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the projects that you see", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.ProjectList](api.ListProjects(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) { writeProjects(w, out.Items) })
		},
	}
	return group("projects", "Projects", list, c.projectAdd(), c.projectEdit())
}

func writeProjects(w io.Writer, all []client.Project) {
	row(w, "NAME", "HOME CLUSTER", "ALLOWED CLUSTERS", "STORAGE", "MEMBERS", "LABELS", "ID")
	for _, p := range all {
		allowed := "all"
		if p.AllowedClusters != nil {
			allowed = strings.Join(p.AllowedClusters, ", ")
		}
		row(w, p.Name, p.HomeCluster, allowed, p.Storage, len(p.Members), labels(p.Labels), p.ID)
	}
}

func (c *command) projectAdd() *cobra.Command {
	var in client.ProjectCreate
	var marks []string
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a project (admins)", Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			in.Name = args[0]
			if err := pairs("label", marks, &in.Labels); err != nil {
				return err
			}
			p, err := call[client.Project](api.CreateProject(cmd.Context(), in))
			if err != nil {
				return err
			}
			return c.print(p, func(w io.Writer) { writeProjects(w, []client.Project{p}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.HomeCluster, "home-cluster", "", "its own default cluster, id or name")
	f.StringArrayVar(&in.AllowedClusters, "allow-cluster", nil, "a cluster that it may use, id or name (repeatable; default: all)")
	f.StringVar(&in.Storage, "storage", "", "where its data lies, a storage backend's id or name (default: what selectors say, else the default)")
	f.BoolVar(&in.NoStorage, "no-storage", false, "give it no storage")
	f.StringArrayVar(&in.Members, "member", nil, "a user that sees it, id or name (repeatable)")
	f.StringArrayVar(&marks, "label", nil, "label NAME=VALUE (repeatable)")
	return cmd
}

func (c *command) projectEdit() *cobra.Command {
	var name, home, storage string
	var allowed, members, marks []string
	var all bool
	cmd := &cobra.Command{Use: "edit PROJECT", Short: "Change a project (admins); only what is given changes", Args: exactly(1, "a project's name or id")}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "its new name")
	f.StringVar(&home, "home-cluster", "", "its own default cluster, id or name; empty: none")
	f.StringVar(&storage, "storage", "", "where new Jobs keep its data, a storage backend's id or name; empty: nowhere; data is not moved")
	f.StringArrayVar(&allowed, "allow-cluster", nil, "all the clusters that it may use, id or name (repeatable)")
	f.BoolVar(&all, "allow-all-clusters", false, "it may use every cluster")
	f.StringArrayVar(&members, "member", nil, "all its members, id or name (repeatable)")
	f.StringArrayVar(&marks, "label", nil, "all its labels NAME=VALUE (repeatable)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		var in client.ProjectPatch
		given := cmd.Flags().Changed
		if given("name") {
			in.Name = &name
		}
		if given("home-cluster") {
			in.HomeCluster = &home
		}
		if given("storage") {
			in.Storage = &storage
		}
		if given("allow-cluster") {
			in.AllowedClusters = &allowed
		}
		if given("allow-all-clusters") {
			in.AllowAllClusters = &all
		}
		if given("member") {
			in.Members = &members
		}
		if given("label") {
			set := map[string]string{}
			if err := pairs("label", marks, &set); err != nil {
				return err
			}
			in.Labels = &set
		}
		p, err := call[client.Project](api.UpdateProject(cmd.Context(), args[0], in))
		if err != nil {
			return err
		}
		return c.print(p, func(w io.Writer) { writeProjects(w, []client.Project{p}) })
	}
	return cmd
}
