package cluster

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nagelfluh/nagelfluh/core/internal/name"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Limits of a cluster's fields. The REST contract states the same figures.
const (
	maxNameRunes  = 100
	maxLabels     = 64
	maxLabelRunes = 253
	maxRuntime    = 10 * 365 * 24 * 3600 // seconds
)

type faults []problem.Field

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, problem.Field{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) name(field, s string) {
	f.text(field, s, 1, maxNameRunes)
	if fault := name.Fault(s, DefaultID); fault != "" {
		f.add(field, "%s", fault)
	}
}

func (f *faults) namespace(s string) {
	if s == "" {
		return
	}
	for _, why := range validation.IsDNS1123Label(s) {
		f.add("namespace", "is no Kubernetes namespace: %s", why)
	}
}

func (f *faults) queue(s string) {
	if s == "" {
		return
	}
	for _, why := range validation.IsDNS1123Subdomain(s) {
		f.add("queue_name", "is no Kubernetes name: %s", why)
	}
}

func (f *faults) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		f.add("labels", "has %d entries: at most %d are taken", len(labels), maxLabels)
	}
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		f.text("labels["+k+"]", k, 1, maxLabelRunes)
		f.text("labels["+k+"]", labels[k], 0, maxLabelRunes)
	}
}

func (f *faults) maxRuntime(seconds *int64) {
	if seconds != nil && (*seconds < 1 || *seconds > maxRuntime) {
		f.add("max_runtime_seconds", "is %d: want 1 to %d, or null for no limit", *seconds, int64(maxRuntime))
	}
}

func (f *faults) text(field, s string, least, most int) {
	switch n := utf8.RuneCountInString(s); {
	case !utf8.ValidString(s):
		f.add(field, "is not UTF-8")
	case n < least:
		f.add(field, "is missing")
	case n > most:
		f.add(field, "has %d characters: at most %d are taken", n, most)
	case strings.ContainsFunc(s, unicode.IsControl):
		f.add(field, "has a control character in it")
	}
}
