package job

import (
	"regexp"
	"strings"
	"testing"
)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// B22: whatever the user's name is, the Job's name is valid, short enough for its pods and unique.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 70)
	names := []string{
		"", "x", "train", strings.Repeat("n", 64), strings.Repeat("n", 200), long + "0123456789", long + "9876543210",
		strings.Repeat("b", 30) + strings.Repeat("-", 40) + "c", "Größe_Test/1", "🚀", "🚀🚀 ship it", "-x-", "123", "UPPER",
		"a.b.c.", "registry.example/team/image:v1.2", strings.Repeat("é", 100), "\x00\xff", "a\u0308",
	}
	seen := map[string]string{}
	for i, name := range names {
		for _, attempt := range []string{"attempt-1", "attempt-2"} {
			got := Name(name, attempt)
			if !dnsLabel.MatchString(got) || len(got) > MaxNameLength {
				t.Errorf("Name(%q) = %q (%d): not a DNS label of at most %d", name, got, len(got), MaxNameLength)
			}
			if strings.Contains(got, "--") {
				t.Errorf("Name(%q) = %q has two dashes in a row", name, got)
			}
			if got != Name(name, attempt) {
				t.Errorf("Name(%q) differs between calls", name)
			}
			key := attempt + "/" + names[i]
			if other, used := seen[got]; used && !strings.HasPrefix(other, attempt) {
				t.Errorf("Name(%q) = %q is also the name of %q", key, got, other)
			}
			seen[got] = key
		}
	}
	if got := Name("Größe_Test/1", "a"); !strings.HasPrefix(got, "gro-e-test-1-") {
		t.Errorf("Name of Größe_Test/1 = %q, want it readable", got)
	}
}

func TestLabelValue(t *testing.T) {
	for _, s := range []string{
		"", "ok", "with.dots_and-dashes", "image:tag", "branch/name", "-x-", "a.", strings.Repeat("v", 63), strings.Repeat("v", 64),
		"0199f0c2-0000-7000-8000-000000000001", "ü",
	} {
		got := LabelValue(s)
		if got != "" && !validLabelValue(got) {
			t.Errorf("LabelValue(%q) = %q is no label value", s, got)
		}
		if validLabelValue(s) && got != s {
			t.Errorf("LabelValue(%q) = %q, want it unchanged", s, got)
		}
	}
	if LabelValue("a/b") == LabelValue("a:b") {
		t.Error("different texts got one label value")
	}
}
