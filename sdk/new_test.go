//go:build unix

package sdk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

type empty struct{}

// typed is a provider of the given types.
type typed []provider.Type

func (t typed) Types() []provider.Type { return t }

func (typed) Connect(context.Context, provider.Request) (provider.Connection, error) {
	return provider.Connection{BackendEnvironment: true}, nil
}

type both struct {
	typed
	chatty
}

// misspelt has methods that are named like those of interfaces but fit none.
type misspelt struct{ typed }

func (misspelt) ValidateConfig(context.Context, []byte) error { return nil }
func (misspelt) Configure(context.Context, string) error      { return nil }

type badSchema struct{ chatty }

func (badSchema) ConfigSchema() []byte                    { return []byte(`{"type": "string"}`) }
func (badSchema) Configure(context.Context, []byte) error { return nil }

type lister struct{}

func (lister) SelectClusters(context.Context, selector.ListRequest) (selector.Choice, error) {
	return selector.ChooseAny(""), nil
}

func TestNewSaysWhatToMend(t *testing.T) {
	good := sdk.Info{Name: "x", Version: "1"}
	raw := schema.MustOf[empty]()
	tests := map[string]struct {
		info sdk.Info
		impl any
		says []string
	}{
		"no info":      {sdk.Info{Title: strings.Repeat("x", 201), DocsURL: "ftp://x"}, chatty{}, []string{"Info.Name", "Info.Version", "Info.Title", "Info.DocsURL"}},
		"nothing":      {good, empty{}, []string{"implements neither"}},
		"nil":          {good, nil, []string{"implements neither"}},
		"both":         {good, both{}, []string{"a provider and a selector"}},
		"no type":      {good, typed{}, []string{"no type"}},
		"bad type":     {good, typed{{Name: "A", Schema: []byte("{}"), Style: provider.SelfService}}, []string{`type "A": the name`, "no title", "Registrar", `needs a "type"`}},
		"type twice":   {good, typed{{Name: "a", Title: "a", Schema: raw}, {Name: "a", Title: "b", Schema: raw}}, []string{"offered twice"}},
		"misspelt":     {good, misspelt{typed{{Name: "a", Title: "a", Schema: raw}}}, []string{"implement provider.Validator", "implement sdk.Configurable"}},
		"odd settings": {good, badSchema{}, []string{"implement sdk.Configurable"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sdk.New(test.info, test.impl)
			for _, part := range test.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in: %v", part, err)
				}
			}
		})
	}
	for _, impl := range []any{chatty{}, &chatty{}, lister{}, typed{{Name: "a", Title: "a", Schema: raw}}} {
		if _, err := sdk.New(good, impl); err != nil {
			t.Errorf("%T: %v", impl, err)
		}
	}
}
