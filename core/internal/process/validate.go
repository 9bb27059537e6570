package process

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Limits of a submission. The REST contract states the same figures.
const (
	MaxNameRunes             = 253
	MaxTypeRunes             = 128
	MaxKeyRunes              = 255
	MaxLabels                = 64
	MaxLabelRunes            = 253
	MaxEnv                   = 1000
	MaxRetries               = 1000
	MaxInfrastructureRetries = 10
	MaxRuntimeSeconds        = 10 * 365 * 24 * 3600
)

// faults collects what is wrong, by field.
type faults struct{ list []problem.Field }

// checker adds faults below one prefix.
type checker struct {
	all    *faults
	prefix string
}

func (f *faults) at(prefix string) *checker { return &checker{all: f, prefix: prefix} }

func (c *checker) add(field, format string, args ...any) {
	c.all.list = append(c.all.list, problem.Field{Field: c.prefix + field, Message: fmt.Sprintf(format, args...)})
}

// submission checks one submission and brings it into its canonical form.
func (c *checker) submission(s *Submission) {
	c.text("name", s.Name, 1, MaxNameRunes)
	if strings.TrimSpace(s.Name) != s.Name {
		c.add("name", "begins or ends with a blank")
	}
	c.text("type", s.Type, 0, MaxTypeRunes)
	c.text("key", s.Key, 0, MaxKeyRunes)
	c.labels("labels", s.Labels)
	c.spec(&s.Spec)
}

func (c *checker) spec(s *Spec) {
	c.text("spec.image", s.Image, 1, 1024)
	if strings.ContainsFunc(s.Image, unicode.IsSpace) {
		c.add("spec.image", "has a blank in it: want a reference such as registry.example/team/name:tag")
	}
	for i, a := range s.Command {
		c.literal(fmt.Sprintf("spec.command[%d]", i), a)
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		c.add("spec.command[0]", "is empty: want the program to run")
	}
	for i, a := range s.Args {
		c.literal(fmt.Sprintf("spec.args[%d]", i), a)
	}
	c.env(s.Env)
	if s.WorkingDir != "" {
		c.literal("spec.working_dir", s.WorkingDir)
		if !path.IsAbs(s.WorkingDir) {
			c.add("spec.working_dir", "is not an absolute path")
		}
	}
	c.resources(s)
	c.nodeSelector(s.NodeSelector)
	c.labels("spec.labels", s.Labels)
	if s.Retries < 0 || s.Retries > MaxRetries {
		c.add("spec.retries", "is %d: want 0 to %d", s.Retries, MaxRetries)
	}
	if n := s.InfrastructureRetries; n < 0 || n > MaxInfrastructureRetries {
		c.add("spec.infrastructure_retries", "is %d: want 0 to %d", n, MaxInfrastructureRetries)
	}
	if m := s.MaxRuntimeSeconds; m != nil && (*m < 1 || *m > MaxRuntimeSeconds) {
		c.add("spec.max_runtime_seconds", "is %d: want 1 to %d seconds", *m, int64(MaxRuntimeSeconds))
	}
	for _, name := range sorted(s.StartLimits) {
		at, seconds := "spec.start_limits."+name, s.StartLimits[name]
		if !slices.Contains(StartLimitNames, name) {
			c.add(at, "is no start limit: want one of %s", strings.Join(StartLimitNames, ", "))
		} else if seconds < 0 || seconds > MaxRuntimeSeconds {
			c.add(at, "is %d: want 0 (none) to %d seconds", seconds, int64(MaxRuntimeSeconds))
		}
	}
	if s.QueueName != "" {
		for _, why := range validation.IsDNS1123Subdomain(s.QueueName) {
			c.add("spec.queue_name", "is no Kubernetes name: %s", why)
		}
	}
}

func (c *checker) env(env []EnvVar) {
	c.count("spec.env", len(env), MaxEnv)
	seen := make(map[string]int, len(env))
	for i, e := range env {
		field := fmt.Sprintf("spec.env[%d]", i)
		if first, twice := seen[e.Name]; twice {
			c.add(field+".name", "%q is set in spec.env[%d] too", e.Name, first)
		}
		seen[e.Name] = i
		if len(validation.IsEnvVarName(e.Name)) > 0 {
			c.add(field+".name", "%q is no name: want letters, digits, \"_\", \"-\" and \".\", and no digit first", e.Name)
		}
		c.literal(field+".value", e.Value)
	}
}

func (c *checker) nodeSelector(labels map[string]string) {
	c.count("spec.node_selector", len(labels), MaxLabels)
	for _, k := range sorted(labels) {
		at := "spec.node_selector[" + k + "]"
		for _, why := range validation.IsQualifiedName(k) {
			c.add(at, "is no Kubernetes label name: %s", why)
		}
		for _, why := range validation.IsValidLabelValue(labels[k]) {
			c.add(at, "%q is no Kubernetes label value: %s", labels[k], why)
		}
	}
}

// labels checks labels of ours, which are any text.
func (c *checker) labels(field string, labels map[string]string) {
	c.count(field, len(labels), MaxLabels)
	for _, k := range sorted(labels) {
		c.text(field+"["+k+"]", k, 1, MaxLabelRunes)
		c.text(field+"["+k+"]", labels[k], 0, MaxLabelRunes)
	}
}

// text checks text that people read: no control characters.
func (c *checker) text(field, s string, least, most int) {
	switch n := utf8.RuneCountInString(s); {
	case !utf8.ValidString(s):
		c.add(field, "is not UTF-8")
	case n < least:
		c.add(field, "is missing")
	case n > most:
		c.add(field, "has %d characters: at most %d are taken", n, most)
	case strings.ContainsFunc(s, unicode.IsControl):
		c.add(field, "has a control character in it")
	}
}

// literal checks text that goes to the container byte for byte.
func (c *checker) literal(field, s string) {
	switch {
	case !utf8.ValidString(s):
		c.add(field, "is not UTF-8, which Kubernetes does not carry: encode it, for example as base64")
	case strings.ContainsRune(s, 0):
		c.add(field, "has a NUL byte in it, which no program can receive")
	}
}

func (c *checker) count(field string, n, most int) {
	if n > most {
		c.add(field, "has %d entries: at most %d are taken", n, most)
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
