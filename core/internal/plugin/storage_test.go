package plugin

import (
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// What a selector says of the storage of a new project; an unset answer is an error, never an abstention. One that does not
// offer the question is not asked.
func TestSelectStorageAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   storage.Answer
		says   string
	}{
		"selected":  {`{"selected":{"backendId":"b","reason":"r"}}`, storage.Answer{BackendID: "b", Reason: "r"}, ""},
		"abstained": {`{"abstained":{"reason":"r"}}`, storage.Answer{Abstained: true, Reason: "r"}, ""},
		"unset":     {`{}`, storage.Answer{}, "neither selected nor abstained"},
		"no reason": {`{"selected":{"backendId":"b"}}`, storage.Answer{}, "without naming a storage backend or a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install("selector-none", goodSelector(nil))
			r.install("selector-x", goodSelector(map[string]method{
				"Describe":      answer(`{"name":"n","version":"1","kind":"KIND_SELECTOR","capabilities":["CAPABILITY_SELECT_STORAGE"]}`),
				"SelectStorage": answer(c.answer)}))
			chain := r.start(r.options()).StorageSelectors()
			if len(chain) != 1 || chain[0].Name() != "selector-x" {
				t.Fatalf("asked are %v", chain)
			}
			got, err := chain[0].SelectStorage(t.Context(), placement.User{ID: "u", Name: "u"}, placement.Project{ID: "p", Name: "p"},
				[]storage.Offer{{ID: "b", Name: "n", Type: "s3", Default: true}})
			if c.says == "" {
				if err != nil || got != c.want {
					t.Errorf("%+v %v", got, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error but %+v", got)
			}
			wants(t, err.Error(), "selector(selector-x): SelectStorage: ", c.says)
		})
	}
}
