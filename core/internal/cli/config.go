package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/internal/config"
)

func (c *command) configCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Show every setting of the server, with secrets masked, and where it came from", Args: cobra.NoArgs,
		Long: "Show every setting as `nagelfluh server` would have it with the same flags, file and environment.",
	}
	s := addSettings(show)
	show.RunE = func(*cobra.Command, []string) error {
		cfg, err := s.load(c.Env)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings {
			c.note("warning: %s", w)
		}
		all := cfg.Show()
		return c.print(all, func(w io.Writer) {
			row(w, "SETTING", "VALUE", "FROM", "ENVIRONMENT", "FLAG")
			for _, s := range all {
				value := fmt.Sprint(s.Value)
				switch v := s.Value.(type) {
				case []string:
					value = strings.Join(v, ", ")
				case map[string]any:
					// On one line, as the environment variable takes it.
					text, err := json.Marshal(v)
					if err != nil {
						panic("cli: a setting that is not JSON: " + err.Error())
					}
					if value = string(text); len(v) == 0 {
						value = ""
					}
				}
				row(w, s.Key, value, s.Source, s.Env, s.Flag)
			}
		})
	}
	example := &cobra.Command{
		Use: "example", Short: "Print a commented configuration file with every setting", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(c.Out, config.Example())
			return err
		},
	}
	return group("config", "The server's settings", show, example)
}
