package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain VERSION|PROCESS", Short: "Show where a version went and why", Args: exactly(1, "a version's id or a process's name"),
		Long: "Show every attempt of a version with every decision: what was asked, what was answered, how long it took, and how each\n" +
			"cluster stood. The name of a process means its latest version.",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			v, err := c.version(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			e, err := call[client.Explanation](api.ExplainVersion(cmd.Context(), v.ID))
			if err != nil {
				return err
			}
			return c.print(e, func(w io.Writer) { writeExplanation(w, e) })
		},
	}
}

func writeExplanation(w io.Writer, e client.Explanation) {
	v := e.Version
	fmt.Fprintf(w, "%s, version %d (%s)\n", v.ProcessName, v.Number, v.ID)
	fmt.Fprintf(w, "  state: %s\n", stands(v.Attempt))
	for _, a := range e.Attempts {
		fmt.Fprintf(w, "\nattempt %d: %s\n", a.Attempt.Number, stands(a.Attempt))
		if a.Attempt.ClusterID != "" {
			fmt.Fprintf(w, "  on %s, namespace %s, Job %s\n", nameOr(a.Attempt.ClusterName, a.Attempt.ClusterID), a.Attempt.Namespace, a.Attempt.JobName)
		}
		if len(a.Decisions) == 0 {
			fmt.Fprintln(w, "  no decision yet")
		}
		for _, d := range a.Decisions {
			writeDecision(w, d, "  ")
		}
	}
}

func stands(a client.Attempt) string {
	text := string(a.State)
	if a.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *a.ExitCode)
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if !a.UnreachableSince.IsZero() {
		text += fmt.Sprintf(" (the cluster has been out of reach for %s)", age(a.UnreachableSince))
	}
	return text
}

func nameOr(name, id string) string {
	if name != "" {
		return name
	}
	return id
}

func writeDecision(w io.Writer, d client.Decision, indent string) {
	where := string(d.Outcome)
	if d.ClusterID != "" {
		where += " on " + nameOr(d.ClusterName, d.ClusterID)
	}
	by := string(d.Rule)
	if d.Plugin != "" {
		by = strings.TrimSpace(by + " " + d.Plugin)
	}
	fmt.Fprintf(w, "%s%s  %s", indent, d.At.Local().Format("2006-01-02 15:04:05.000"), where)
	if by != "" {
		fmt.Fprintf(w, " by %s", by)
	}
	fmt.Fprintf(w, ": %s\n", d.Reason)
	names := map[string]string{}
	for _, c := range d.Candidates {
		names[c.ID] = c.Name
	}
	if len(d.Asked) > 0 {
		row(w, indent+"  ASKED", "QUESTION", "ANSWER", "CLUSTER", "TOOK", "REASON")
	}
	for _, a := range d.Asked {
		answer := string(a.Answer)
		if a.Ignored {
			answer += " (ignored)"
		}
		cluster := nameOr(names[a.ClusterID], a.ClusterID)
		if len(a.Clusters) > 0 {
			list := make([]string, len(a.Clusters))
			for i, id := range a.Clusters {
				list[i] = nameOr(names[id], id)
			}
			cluster = strings.Join(list, ", ")
		}
		row(w, indent+"  "+a.Plugin, a.Hook, answer, cluster, fmt.Sprintf("%.1f ms", a.TookMs), a.Reason)
	}
	if len(d.Candidates) > 0 {
		row(w, indent+"  CLUSTER", "TYPE", "HEALTH", "ACTIVE", "GPUS FREE/ALL", "DEFAULT", "EXCLUDED BECAUSE")
	}
	for _, cand := range d.Candidates {
		row(w, indent+"  "+cand.Name, cand.Type, cand.Health, cand.ActiveAttempts, gpus(cand.Capacity), yes(cand.Default), cand.Excluded)
	}
}

// gpus sums up the extended resources that look like GPUs.
func gpus(c client.Capacity) string {
	if c.Resources == nil {
		return "?"
	}
	var parts []string
	for _, name := range sortedNames(c.Resources) {
		if r := c.Resources[name]; strings.Contains(strings.ToLower(name), "gpu") {
			parts = append(parts, fmt.Sprintf("%d/%d %s", r.Free, r.Total, name))
		}
	}
	return strings.Join(parts, ", ")
}
