package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) pluginsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the plugins and how they stand", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.PluginList](api.ListPlugins(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) {
				row(w, "NAME", "KIND", "VERSION", "TYPES", "STATE", "RESTARTS", "LAST ERROR", "PATH")
				for _, p := range out.Items {
					types := append([]string(nil), p.Types...)
					for _, t := range p.ShadowedTypes {
						types = append(types, fmt.Sprintf("%s (shadowed by %s)", t, p.ShadowedBy[t]))
					}
					state := p.State
					if p.Required {
						state += " (required)"
					}
					row(w, p.Name, p.Kind, p.Version, strings.Join(types, ", "), state, p.Restarts, p.LastError, p.Path)
				}
			})
		},
	}
	return group("plugins", "The server's plugins", list)
}
