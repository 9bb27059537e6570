package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// moment is one line of a timeline: an event, and how often it came.
type moment struct {
	client.Event
	times int
	last  time.Time // of several
}

// compact makes one line of a reason that comes again before anything else happens, and leaves out the new state that
// the decision before it has told of.
func compact(timeline []client.Event) (lines []moment) {
	said := map[string]int{} // line of each reason since something else happened
	for _, e := range timeline {
		if e.Kind == "reason" || e.Kind == "decided" && e.State == "placing" {
			if i, found := said[e.Message]; found {
				lines[i].times++
				lines[i].last = e.At
				continue
			}
			said[e.Message] = len(lines)
		} else {
			clear(said)
		}
		if n := len(lines); n > 0 && e.Kind == "state" && lines[n-1].Kind == "decided" && lines[n-1].Message == e.Message && e.State == "creating" {
			continue
		}
		lines = append(lines, moment{Event: e, times: 1, last: e.At})
	}
	return lines
}

func writeMoment(w io.Writer, begin time.Time, m moment) {
	try := ""
	if m.AttemptNumber > 0 {
		try = fmt.Sprint(m.AttemptNumber)
	}
	who := m.ActorName
	if who == "" && m.Actor != "system" {
		who = m.Actor
	}
	what, says := what(m.Event)
	if m.times > 1 {
		says += fmt.Sprintf(" [%d times, the last at %s]", m.times, m.last.Local().Format("15:04:05"))
	}
	row(w, "  "+moments(m.At), "+"+took(m.At.Sub(begin)), try, what, who, says)
}

// what says in a word or two, and in a sentence, what an event tells.
func what(e client.Event) (word, sentence string) {
	var d struct {
		Outcome, Rule, Plugin string
		ReasonCode            string `json:"reason_code"`
		ExitCode              *int32 `json:"exit_code"`
		Run                   int32
		Job                   struct{ Namespace, Name string }
	}
	_ = json.Unmarshal(e.Data, &d) // without details the sentence must do
	sentence = e.Message
	switch e.Kind {
	case "submitted":
		return "submitted", ""
	case "decided":
		word = "decided: " + d.Outcome
		if e.ClusterID != "" && d.Outcome == "placed" {
			word = "placed on " + nameOr(e.ClusterName, e.ClusterID)
		}
		switch {
		case d.Plugin != "":
			sentence += " (by plugin " + d.Plugin + ")"
		case d.Rule != "":
			sentence += " (rule " + d.Rule + ")"
		}
		return word, sentence
	case "state":
		word = string(e.State)
		if d.Job.Name != "" {
			sentence += " Job " + d.Job.Namespace + "/" + d.Job.Name + "."
		}
	case "reason":
		word = "still " + string(e.State)
	case "run-started":
		return fmt.Sprintf("run %d started", d.Run), ""
	case "cancel-requested":
		return "cancel requested", ""
	case "unreachable", "reachable":
		return e.Kind, sentence
	default:
		return e.Kind, sentence
	}
	if d.ExitCode != nil {
		word += fmt.Sprintf(", exit code %d", *d.ExitCode)
	}
	if d.ReasonCode != "" {
		sentence += " (" + d.ReasonCode + ")"
	}
	return word, sentence
}
