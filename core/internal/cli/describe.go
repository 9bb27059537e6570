package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// description is what `describe` shows, for programs.
type description struct {
	Version  client.Version   `json:"version"`
	Attempts []client.Attempt `json:"attempts"`
	Timeline []client.Event   `json:"timeline"`
}

func (c *command) describeCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "describe VERSION|PROCESS", Short: "Show a version, its attempts and everything that happened to it",
		Args: exactly(1, "a version's id or a process's name"),
		Long: "Show what a version runs, how it stands and why, each attempt with its cluster, Job and times, and everything that happened, the\n" +
			"first first. A reason that comes again and again is shown once with its number. The name of a process means its latest version.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && c.output != "table" {
				return usage("--follow shows lines for people; programs read the stream /versions/VERSION/events of the API")
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			v, err := c.version(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			d, err := c.describeVersion(cmd.Context(), api, v.ID)
			if err != nil {
				return err
			}
			if err := c.print(d, func(w io.Writer) { writeDescription(w, d) }); err != nil || !follow {
				return err
			}
			return c.followTimeline(cmd.Context(), api, d)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens until the version has ended")
	return cmd
}

func (c *command) describeVersion(ctx context.Context, api *client.Client, id string) (d description, err error) {
	e, err := call[client.Explanation](api.ExplainVersion(ctx, id))
	if err != nil {
		return d, err
	}
	d.Version, d.Attempts, d.Timeline = e.Version, []client.Attempt{}, []client.Event{}
	for _, a := range e.Attempts {
		d.Attempts = append(d.Attempts, a.Attempt)
	}
	for after := int64(0); ; {
		page, err := call[client.Timeline](api.GetTimeline(ctx, id, &client.GetTimelineParams{After: optional(after), Limit: optional(int32(pageSize))}))
		if err != nil {
			return d, err
		}
		d.Timeline = append(d.Timeline, page.Items...)
		if after = page.NextAfter; after == 0 {
			return d, nil
		}
	}
}

// followTimeline writes what happens after the description, until the version's end.
func (c *command) followTimeline(ctx context.Context, api *client.Client, d description) error {
	last := ""
	if n := len(d.Timeline); n > 0 {
		last = strconv.FormatInt(d.Timeline[n-1].Seq, 10)
	}
	open := func(ctx context.Context, id string) (*http.Response, error) {
		if id == "" {
			id = last
		}
		return api.StreamVersionEvents(ctx, d.Version.ID, &client.StreamVersionEventsParams{LastEventID: optional(id)})
	}
	lost := func(err error) { c.note("the stream is interrupted, trying again: %v", err) }
	said := map[string]bool{}
	return follow(ctx, open, lost, func(m message) bool {
		if m.event == "end" {
			return true
		}
		var e client.Event
		if json.Unmarshal(m.data, &e) != nil {
			return false
		}
		if e.Kind != "reason" {
			clear(said)
		} else if said[e.Message] {
			return false // to and fro
		}
		said[e.Message] = true
		w := tabwriter.NewWriter(c.text(), 10, 8, 2, ' ', 0)
		writeMoment(w, d.Version.CreatedAt, moment{Event: e, times: 1})
		_ = w.Flush()
		return false
	})
}

func writeDescription(w io.Writer, d description) {
	v := d.Version
	fmt.Fprintf(w, "%s, version %d\n", v.ProcessName, v.Number)
	field := named(w)
	field("Version", v.ID)
	field("Type", v.ProcessType)
	field("Labels", labels(v.ProcessLabels))
	field("Submitted", moments(v.CreatedAt)+by(d.Timeline, v.SubmittedBy))
	field("State", string(v.State)+exitSuffix(v.Attempt))
	field("Reason", reasonOf(v.Attempt))
	if !v.Attempt.UnreachableSince.IsZero() {
		field("Unreachable", "since "+moments(v.Attempt.UnreachableSince))
	}
	writeSpec(w, v.Spec)
	for _, a := range d.Attempts {
		writeAttempt(w, a)
	}
	fmt.Fprintln(w, "\nTimeline")
	row(w, "  TIME", "AFTER", "TRY", "WHAT", "BY", "SAYS")
	for _, m := range compact(d.Timeline) {
		writeMoment(w, v.CreatedAt, m)
	}
}

func writeSpec(w io.Writer, s client.Spec) {
	fmt.Fprintln(w, "\nRuns")
	field := named(w)
	field("Image", s.Image)
	field("Command", quoted(s.Command))
	field("Arguments", quoted(s.Args))
	field("Directory", s.WorkingDir)
	for _, e := range s.Env {
		field("Env", e.Name+"="+e.Value)
	}
	field("Requests", labels(s.Requests))
	field("Limits", labels(s.Limits))
	field("Node selector", labels(s.NodeSelector))
	field("Labels", labels(s.Labels))
	if s.Retries > 0 {
		field("Retries", strconv.Itoa(int(s.Retries)))
	}
	if s.MaxRuntimeSeconds != nil {
		field("Max runtime", (time.Duration(*s.MaxRuntimeSeconds) * time.Second).String())
	}
	field("Cluster", s.Cluster)
	field("Queue", s.QueueName)
}

func writeAttempt(w io.Writer, a client.Attempt) {
	fmt.Fprintf(w, "\nAttempt %d: %s\n", a.Number, string(a.State)+exitSuffix(a))
	field := named(w)
	field("Reason", reasonOf(a))
	field("Cluster", nameOr(a.ClusterName, a.ClusterID))
	field("Namespace", a.Namespace)
	field("Job", a.JobName)
	field("UID", a.JobUID)
	if a.Runs > 0 {
		field("Runs", strconv.Itoa(int(a.Runs)))
	}
	begin := a.CreatedAt
	for _, at := range []struct {
		name string
		time time.Time
	}{{"Begun", a.CreatedAt}, {"Placed", a.PlacedAt}, {"Job made", a.JobAt}, {"Started", a.StartedAt}, {"Cancel asked", a.CancelRequestedAt}, {"Ended", a.EndedAt}} {
		switch {
		case at.time.IsZero():
		case at.time.Equal(begin):
			field(at.name, moments(at.time))
		default:
			field(at.name, moments(at.time)+", after "+took(at.time.Sub(begin)))
		}
	}
	if !a.StartedAt.IsZero() && !a.EndedAt.IsZero() {
		field("Took", took(a.EndedAt.Sub(a.StartedAt))+" from start to end")
	}
}

// named writes one name and its value a line, and nothing for what is empty.
func named(w io.Writer) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-14s%s\n", name+":", oneLine(value))
		}
	}
}

func moments(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// took writes a duration as exactly as somebody who compares two wants it.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // two clocks
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func exitSuffix(a client.Attempt) string {
	if a.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf(", exit code %d", *a.ExitCode)
}

func reasonOf(a client.Attempt) string {
	if a.ReasonCode == "" {
		return a.Reason
	}
	return strings.TrimSpace(a.Reason + " (" + a.ReasonCode + ")")
}

// by names who submitted: the first event has the name.
func by(timeline []client.Event, id string) string {
	for _, e := range timeline {
		if e.Actor == id && e.ActorName != "" {
			return " by " + e.ActorName
		}
	}
	return " by " + id
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\$") {
			out[i] = strconv.Quote(word)
		}
	}
	return strings.Join(out, " ")
}
