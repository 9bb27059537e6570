package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) usersCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the users (admins)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.UserList](api.ListUsers(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) { writeUsers(w, out.Items...) })
		},
	}
	var in client.UserCreate
	add := &cobra.Command{
		Use: "add NAME", Short: "Add a user (admins)", Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			in.Name = args[0]
			u, err := call[client.User](api.CreateUser(cmd.Context(), in))
			if err != nil {
				return err
			}
			return c.print(u, func(w io.Writer) { writeUsers(w, u) })
		},
	}
	add.Flags().StringArrayVar(&in.Groups, "group", nil, "group of the user (repeatable)")
	add.Flags().BoolVar(&in.Admin, "admin", false, "the user may do everything")
	who := &cobra.Command{
		Use: "whoami", Short: "Show who the key belongs to", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			u, err := call[client.User](api.WhoAmI(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(u, func(w io.Writer) { writeUsers(w, u) })
		},
	}
	return group("users", "Users", list, add, who)
}

func writeUsers(w io.Writer, all ...client.User) {
	row(w, "NAME", "ADMIN", "GROUPS", "ID")
	for _, u := range all {
		row(w, u.Name, yes(u.Admin), strings.Join(u.Groups, ", "), u.ID)
	}
}
