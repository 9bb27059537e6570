package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// marks are the signs in front of the lines of a report.
type marks struct{ good, bad, warn, open string }

// marks returns signs that the terminal can show, as far as its locale says.
func (c *command) marks() marks {
	locale := strings.ToLower(cmp.Or(c.getenv("LC_ALL"), c.getenv("LC_CTYPE"), c.getenv("LANG")))
	if strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
		return marks{good: "✓", bad: "✗", warn: "!", open: "?"}
	}
	return marks{good: "[ok]", bad: "[FAIL]", warn: "[!]", open: "[?]"}
}

func (m marks) of(ok bool) string {
	if ok {
		return m.good
	}
	return m.bad
}

// writeReport writes the report of a connection test for people.
func writeReport(w io.Writer, r client.ConnectionReport, m marks) {
	outcome := r.Message
	if r.Class != "" {
		outcome += " (" + r.Class + ")"
	}
	line(w, m.of(r.Ok), outcome)
	if r.Remedy != "" {
		line(w, "", r.Remedy)
	}
	for _, f := range r.Fields {
		line(w, "", f.Field+": "+f.Message)
	}
	if len(r.Contexts) > 0 {
		line(w, "", "contexts to choose from: "+strings.Join(r.Contexts, ", "))
	}
	for _, text := range r.Warnings {
		line(w, m.warn, text)
	}
	section(w, "Steps")
	for _, p := range r.Phases {
		line(w, m.of(p.Ok), p.Name, millis(p.TookMs), p.Message)
	}
	if facts := facts(r); len(facts) > 0 {
		section(w, "Cluster")
		for _, f := range facts {
			line(w, "", f[0], f[1])
		}
	}
	if len(r.Permissions) > 0 {
		section(w, "Permissions")
		for _, p := range r.Permissions {
			writePermission(w, p, m)
		}
	}
	if k := r.Kueue; k.Installed || k.Message != "" {
		section(w, "Kueue")
		if k.Message != "" {
			line(w, m.warn, k.Message)
		}
		for _, q := range k.Queues {
			line(w, m.of(q.Active), q.Name, "cluster queue "+q.ClusterQueue, q.Message)
		}
	}
}

func writePermission(w io.Writer, p client.ConnectionPermission, m marks) {
	what := p.Verb + " " + p.Resource
	if p.Group != "" {
		what += "." + p.Group
	}
	where := "the whole cluster"
	if p.Namespace != "" {
		where = "namespace " + p.Namespace
	}
	switch {
	case p.Allowed == "yes":
		line(w, m.good, what, where)
	case p.Allowed != "no":
		line(w, m.open, what, where, "could not be asked")
	case p.Required:
		line(w, m.bad, what, where, p.Lost)
	default:
		line(w, m.warn, what, where, p.Lost)
	}
}

// facts are what the test found out about the cluster.
func facts(r client.ConnectionReport) (out [][2]string) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	add("server", r.Server)
	add("version", r.Version)
	add("account", r.User)
	add("namespace", r.Namespace)
	add("identity", r.Identity)
	add("same as", strings.Join(r.SameAs, ", "))
	if r.LatencyMs != nil {
		add("latency", millis(*r.LatencyMs))
	}
	if r.SkewSeconds != nil {
		add("clock", fmt.Sprintf("%+.1f s", *r.SkewSeconds))
	}
	if at := r.ExpiresAt; !at.IsZero() {
		add("credentials until", at.UTC().Format(time.RFC3339))
	}
	if r.Capacity.Resources != nil {
		add("nodes", fmt.Sprint(r.Capacity.Nodes))
		add("GPUs free/all", gpus(r.Capacity))
	}
	return out
}

func section(w io.Writer, title string) { fmt.Fprintf(w, "\n%s\n", title) }

// line writes one line of a report; its cells are columns. Empty ones at the end are left out.
func line(w io.Writer, cells ...string) {
	for len(cells) > 0 && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	clean := strings.NewReplacer("\t", " ", "\r", " ", "\n", " ")
	for i := range cells {
		cells[i] = clean.Replace(cells[i])
	}
	fmt.Fprintln(w, "  "+strings.Join(cells, "\t"))
}

func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return "<1ms"
}

// withReport shows the report that a refusal holds, before the refusal itself is told.
func (c *command) withReport(err error) error {
	var e *apiError
	if !errors.As(err, &e) || e.problem == nil || e.problem.Details["report"] == nil {
		return err
	}
	raw, jsonErr := json.Marshal(e.problem.Details["report"])
	var r client.ConnectionReport
	if jsonErr != nil || json.Unmarshal(raw, &r) != nil {
		return err
	}
	w := tabwriter.NewWriter(c.Err, 0, 8, 2, ' ', 0)
	writeReport(w, r, c.marks())
	fmt.Fprintln(w)
	if flushErr := w.Flush(); flushErr != nil {
		return err
	}
	switch e.problem.Code {
	case "connection_test_failed":
		// The report has said the rest.
		text := "nothing was stored, for the connection test failed"
		if r.Class != "policy" && r.Class != "config" {
			text += "; --no-test stores it all the same"
		}
		return &exit{code: ExitError, err: errors.New(text)}
	case "identity_changed", "identity_in_use":
		return &exit{code: ExitError, err: fmt.Errorf("%w; --confirm-identity confirms", err)}
	}
	return err
}
