package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) keysCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your API keys; an admin sees everybody's", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.APIKeyList](api.ListAPIKeys(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) {
				row(w, "PREFIX", "NAME", "USER", "AGE", "EXPIRES", "STATE", "ID")
				for _, k := range out.Items {
					expires, state := "", "good"
					if !k.ExpiresAt.IsZero() {
						expires = k.ExpiresAt.Local().Format(time.DateTime)
						if time.Now().After(k.ExpiresAt) {
							state = "expired"
						}
					}
					if !k.RevokedAt.IsZero() {
						state = "revoked"
					}
					row(w, k.Prefix, k.Name, k.UserID, age(k.CreatedAt), expires, state, k.ID)
				}
			})
		},
	}
	var in client.APIKeyCreate
	var expires time.Duration
	create := &cobra.Command{
		Use: "create NAME", Short: "Make an API key and print it this once", Args: exactly(1, "a name that says what the key is for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			in.Name = args[0]
			if expires > 0 {
				in.ExpiresAt = time.Now().Add(expires).UTC()
			}
			k, err := call[client.APIKeyCreated](api.CreateAPIKey(cmd.Context(), in))
			if err != nil {
				return err
			}
			return c.print(k, func(w io.Writer) {
				c.note("key %s; it is never shown again:", k.APIKey.Prefix)
				fmt.Fprintln(w, k.Key)
			})
		},
	}
	create.Flags().StringVar(&in.User, "user", "", "user that the key is for, id or name (admins; default: you)")
	create.Flags().DurationVar(&expires, "expires-in", 0, "how long it is good, such as 720h (default: for ever)")
	revoke := &cobra.Command{
		Use: "revoke KEY", Short: "Revoke an API key", Args: exactly(1, "a key's prefix or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			_, err = call[struct{}](api.RevokeAPIKey(cmd.Context(), args[0]))
			return err
		},
	}
	return group("keys", "API keys", list, create, revoke)
}
