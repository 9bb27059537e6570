package api_test

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/nagelfluh/nagelfluh/core/api"
)

// The contract is valid OpenAPI, and says of everything in it what it means.
func TestContract(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, s := range doc.Components.Schemas {
		for field, p := range s.Value.Properties {
			if p.Ref == "" && p.Value.Description == "" {
				t.Errorf("schema %s: %s has no description", name, field)
			}
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.OperationID == "" || op.Summary == "" || len(op.Tags) == 0 {
				t.Errorf("%s %s lacks an id, a summary or a tag", method, path)
			}
			if op.Responses.Default() == nil {
				t.Errorf("%s %s does not say how errors look", method, path)
			}
			for _, p := range op.Parameters {
				if p.Value.Description == "" {
					t.Errorf("%s %s: parameter %s has no description", method, path, p.Value.Name)
				}
			}
			if op.RequestBody != nil && method == "POST" && op.RequestBody.Value.Content["application/json"] == nil {
				t.Errorf("%s %s takes no JSON", method, path)
			}
		}
	}
}
