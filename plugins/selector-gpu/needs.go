package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

// need is an amount of one resource.
type need struct {
	resource string
	amount   int64  // base units
	text     string // as the user wrote it, canonical
}

// figure is the amount for people: a count as a plain number, for a canonical quantity writes 1000 as 1k.
func (n need) figure() string {
	if isBasic(n.resource) {
		return n.text
	}
	return strconv.FormatInt(n.amount, 10)
}

// needs is what one pod asks for.
type needs struct {
	gpus []need // sorted by name, amounts above zero
	rest []need // everything else, likewise
}

// needsOf reads what a version asks for. As in Kubernetes, a limit without a request is a request.
func needsOf(v selector.Version, gpu *regexp.Regexp) (needs, error) {
	asked := map[string]string{}
	maps.Copy(asked, v.Limits)
	maps.Copy(asked, v.Requests)
	var out needs
	for _, resource := range slices.Sorted(maps.Keys(asked)) {
		amount, err := selector.BaseUnits(resource, asked[resource])
		switch one := (need{resource: resource, amount: amount, text: asked[resource]}); {
		case err != nil:
			return needs{}, err
		case amount <= 0:
		case gpu.MatchString(resource):
			out.gpus = append(out.gpus, one)
		default:
			out.rest = append(out.rest, one)
		}
	}
	return out, nil
}

// isBasic says whether every node has the resource, so that its absence in a capacity means: not reported.
func isBasic(resource string) bool { return !strings.Contains(resource, "/") }

// all returns GPUs first, since they are what usually lacks.
func (n needs) all() []need { return slices.Concat(n.gpus, n.rest) }

// String names the GPUs: "2 nvidia.com/gpu".
func (n needs) String() string { return list(n.gpus) }

func list(of []need) string {
	parts := make([]string, len(of))
	for i, one := range of {
		parts[i] = one.figure() + " " + one.resource
	}
	return strings.Join(parts, " and ")
}

// lacking returns what no node of a cluster could ever hold.
func (n needs) lacking(c *selector.Capacity) []need {
	var out []need
	for _, one := range n.all() {
		have, reported := c.Resources[one.resource]
		if !reported && isBasic(one.resource) {
			continue
		}
		if have.NodeMax < one.amount {
			out = append(out, one)
		}
	}
	return out
}

// fitsNow says whether some node has each of the resources free now. It may be another node for each: the snapshot does
// not say, and Kubernetes has the last word.
func (n needs) fitsNow(c *selector.Capacity) bool {
	for _, one := range n.all() {
		have, reported := c.Resources[one.resource]
		if (reported || !isBasic(one.resource)) && have.NodeFreeMax < one.amount {
			return false
		}
	}
	return true
}

// load is the share of the asked GPUs that is taken, of the scarcest kind when there are several; more than 1 when more
// is placed than there is.
func (n needs) load(c *selector.Capacity) float64 {
	highest := 0.0
	for _, one := range n.gpus {
		if have := c.Resources[one.resource]; have.Total > 0 {
			highest = max(highest, float64(have.Total-have.Free)/float64(have.Total))
		}
	}
	return highest
}

// freeOn says how much of the asked GPUs is free: "3 of 8 nvidia.com/gpu free".
func (n needs) freeOn(c *selector.Capacity) string {
	parts := make([]string, len(n.gpus))
	for i, one := range n.gpus {
		have := c.Resources[one.resource]
		parts[i] = fmt.Sprintf("%d of %d %s free", max(have.Free, 0), have.Total, one.resource)
	}
	return strings.Join(parts, " and ")
}

// shortage says, with the numbers, why none of the clusters could ever hold it; exists is false when none has a kind of
// GPU that is asked for.
func (n needs) shortage(known []selector.Cluster) (reason string, exists bool) {
	for _, one := range n.all() {
		most, where := int64(0), ""
		for _, c := range known {
			if have := c.Capacity.Resources[one.resource].NodeMax; have > most {
				most, where = have, c.Name
			}
		}
		switch {
		case most >= one.amount || (most == 0 && isBasic(one.resource)):
		case most == 0:
			return fmt.Sprintf("needs %s %s on one node; no known cluster has any", one.figure(), one.resource), false
		default:
			return fmt.Sprintf("needs %s %s on one node; most is %s (%s)", one.figure(), one.resource, show(one.resource, most), where), true
		}
	}
	// Each resource is large enough somewhere, but no cluster has them all.
	var parts []string
	for _, c := range known {
		var lacks []string
		for _, one := range n.lacking(c.Capacity) {
			lacks = append(lacks, fmt.Sprintf("%s (at most %s)", one.resource, show(one.resource, c.Capacity.Resources[one.resource].NodeMax)))
		}
		parts = append(parts, c.Name+" lacks "+strings.Join(lacks, " and "))
	}
	return fmt.Sprintf("needs %s on one node; %s", list(n.all()), some(parts)), true
}

// show writes an amount of base units for people.
func show(resource string, amount int64) string {
	switch resource {
	case "cpu":
		if amount%1000 != 0 {
			return fmt.Sprintf("%dm", amount)
		}
		return fmt.Sprint(amount / 1000)
	case "memory", "ephemeral-storage":
		for _, unit := range []struct {
			name string
			size int64
		}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}} {
			if amount >= unit.size {
				return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(amount)/float64(unit.size)), ".0") + unit.name
			}
		}
	}
	return fmt.Sprint(amount)
}

func names(clusters []selector.Cluster) string {
	parts := make([]string, len(clusters))
	for i, c := range clusters {
		parts[i] = c.Name
	}
	return some(parts)
}

// some keeps a list readable when there are many clusters.
func some(parts []string) string {
	const most = 5
	if len(parts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:most], ", "), len(parts)-most)
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
