package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// exactly wants n words and names them.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s wants %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// parseSeconds reads a duration such as 90m.
func parseSeconds(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return 0, fmt.Errorf("%q is no duration in whole seconds such as 90m", s)
	}
	return int64(d / time.Second), nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
