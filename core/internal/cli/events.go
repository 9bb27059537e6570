package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// eventsCommand shows what happens, until it is interrupted. JSON is one event a line.
func (c *command) eventsCommand() *cobra.Command {
	var after int64
	var kinds []string
	cmd := &cobra.Command{
		Use: "events", Short: "Show what happens, as it happens", Args: cobra.NoArgs,
		Long: "Show what happens, as it happens, until you interrupt it: what belongs to your projects and, for admins, what belongs to none, such as\n" +
			"orphans and what becomes of clusters. --project limits it to one project.",
		Example: "  nagelfluh events --after 0 --kind orphan --kind lease",
	}
	cmd.Flags().Int64Var(&after, "after", 0, "begin behind the event of this `NUMBER`; 0: with the first (default: with what happens from now on)")
	cmd.Flags().StringArrayVar(&kinds, "kind", nil, "only events of this `KIND`; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		p := client.StreamEventsParams{}
		if cmd.Flags().Changed("after") {
			p.After = &after
		}
		if cmd.Flags().Changed("project") {
			p.Project = &c.project
		}
		open := func(ctx context.Context, id string) (*http.Response, error) {
			q := p
			if id != "" {
				q.After, q.LastEventID = nil, &id
			}
			return api.StreamEvents(ctx, &q)
		}
		err = follow(ctx, open, func(err error) { c.note("the events are interrupted, trying again: %v", err) }, func(m message) bool {
			var e client.Event
			if json.Unmarshal(m.data, &e) != nil || len(kinds) > 0 && !slices.Contains(kinds, e.Kind) {
				return false
			}
			var broken error
			if c.output == "table" {
				_, broken = fmt.Fprintf(c.text(), "%s  %d  %s  %s\n", e.At.Format(time.RFC3339), e.Seq, e.Kind, e.Message)
			} else {
				_, broken = fmt.Fprintf(c.Out, "%s\n", m.data)
			}
			return broken != nil // nobody reads any more
		})
		if errors.Is(err, context.Canceled) {
			return nil // interrupted
		}
		return err
	}
	return cmd
}
