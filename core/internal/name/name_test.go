package name_test

import (
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/name"
)

func TestFault(t *testing.T) {
	const id = "0197f1c2-7d3e-7c64-8b5a-0123456789ab"
	for s, says := range map[string]string{
		"gpu": "", "GPU 1 (Zürich)": "", "0123": "", "東京": "", "a.b": "", "...": "", id + "-gpu": "", "0197f1c2": "", "e\u0301": "",
		".": "addresses", "..": "addresses",
		id: "id", strings.ToUpper(id): "id", strings.ReplaceAll(id, "-", ""): "id", "{" + id + "}": "id", "urn:uuid:" + id: "id", "first-one": "id",
		"gpu\u200b": "invisible", "gp\u00adu": "invisible", "\ufeffgpu": "invisible", "gpu\u202e": "invisible", "gpu\u2066x": "invisible", "gp\u2060u": "invisible",
		"gpu\u2028": "invisible", "gpu\u2029": "invisible", "gpu\ufe0f": "invisible", "gpu\U000e0041": "invisible", "gpu\u3164": "invisible", "gpu\u2800": "invisible",
	} {
		if got := name.Fault(s, "first-one"); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%q: %q, want %q", s, got, says)
		}
	}
}
