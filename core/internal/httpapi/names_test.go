package httpapi_test

import (
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// A name that commands could take for another one, or that two people would read alike, is refused on every way in.
func TestNamesThatDeceive(t *testing.T) {
	w := newWorld(t)
	other := w.added("other")
	w.added("c")
	const projects = "/api/v1/projects"
	must[object](w, w.do("POST", projects, object{"name": "p"}), 201)
	for what, name := range map[string]string{
		"the id of another": other.ID, "the default's id": cluster.DefaultID, "an id": "0b7c9d1e-5f43-4c8e-9a51-0d7c3f9f1a2b",
		"an id in capitals": "0B7C9D1E-5F43-4C8E-9A51-0D7C3F9F1A2B", "an id without hyphens": "0b7c9d1e5f434c8e9a510d7c3f9f1a2b",
		"zero width": "ot\u200bher", "right to left": "ot\u202eher", "a byte order mark": "\ufeffother", "a soft hyphen": "oth\u00ader", "a line separator": "o\u2028ther",
		"a blank letter": "other\u3164", "a tag character": "other\U000e0041", "dots": "..",
	} {
		for way, a := range map[string]answer{
			"POST": w.do("POST", clusters, fakeCluster(name)), "PATCH": w.do("PATCH", clusters+"/c", object{"name": name}),
			"POST of a project": w.do("POST", projects, object{"name": name}), "PATCH of a project": w.do("PATCH", projects+"/p", object{"name": name}),
		} {
			if name == cluster.DefaultID && strings.HasSuffix(way, "project") {
				continue
			}
			if a.status != 422 || len(a.problem().Errors) == 0 || a.problem().Errors[0].Field != "name" {
				t.Errorf("%s, %s: %d %s", what, way, a.status, a.body)
			}
		}
	}
	for _, name := range []string{"Ötzi 7", "gpu-0b7c9d1e", "北京", "a..b"} {
		if a := w.do("POST", clusters, fakeCluster(name)); a.status != 201 {
			t.Errorf("%q: %d %s", name, a.status, a.body)
		}
	}
}
