package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nagelfluh/nagelfluh/core/api/client"
	"github.com/nagelfluh/nagelfluh/core/internal/yamldoc"
)

// field is one top-level property of a provider config, as its JSON Schema has it.
type field struct {
	name, title string
	kinds       []string // of JSON: string, integer, number, boolean, array, object
	file        bool     // long or secret: the flag takes a file
	required    bool
}

// taken are the flags that commands about clusters have for themselves.
var taken = []string{
	"active", "api-key-file", "confirm-identity", "help", "if-match", "label", "max-runtime", "name", "namespace", "no-test", "output",
	"project", "provider-config", "queue", "server", "sort-order", "type",
}

// flag is the field's name on the command line: its own, unless that has another meaning there.
func (f field) flag() string {
	name := strings.ReplaceAll(f.name, "_", "-")
	if slices.Contains(taken, name) {
		return "config-" + name
	}
	return name
}

func (f field) is(kind string) bool { return len(f.kinds) == 0 || slices.Contains(f.kinds, kind) }

// fields reads the properties of a schema, by name.
func fields(schema json.RawMessage) []field {
	var doc struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	var out []field
	for _, name := range sortedNames(doc.Properties) {
		var p struct {
			Title    string          `json:"title"`
			Type     json.RawMessage `json:"type"`
			Textarea bool            `json:"x-nagelfluh-textarea"`
			Secret   bool            `json:"x-nagelfluh-secret"`
		}
		_ = json.Unmarshal(doc.Properties[name], &p) // what a property does not say is left open
		f := field{name: name, title: p.Title, file: p.Textarea || p.Secret, required: slices.Contains(doc.Required, name)}
		var one string
		if json.Unmarshal(p.Type, &one) == nil {
			f.kinds = []string{one}
		} else {
			_ = json.Unmarshal(p.Type, &f.kinds)
		}
		out = append(out, f)
	}
	return out
}

func describeFields(schema json.RawMessage) string {
	var parts []string
	for _, f := range fields(schema) {
		text := "--" + f.flag() + " " + f.placeholder()
		if !f.required {
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func (f field) placeholder() string {
	if f.file {
		return "FILE"
	}
	if len(f.kinds) == 0 {
		return "VALUE"
	}
	return strings.ToUpper(f.kinds[0])
}

// value turns what a flag gives into the property's value.
func (f field) value(given string, in io.Reader) (any, error) {
	if f.file {
		raw, err := readFile(given, in)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", f.flag(), err)
		}
		given = string(raw)
		if !strings.Contains(strings.TrimSpace(given), "\n") {
			given = strings.TrimSpace(given) // an editor's last line break is not part of a token
		}
	}
	if f.is("string") {
		return given, nil
	}
	v, err := yamldoc.Decode([]byte(given), func(_ []string, tag, written string) bool { return !plain(tag, written) })
	if err != nil {
		return nil, usage("--%s: %v", f.flag(), err)
	}
	return v, nil
}

// providerConfig are the flags for a provider config: a whole document, or a flag a property of the type's schema.
type providerConfig struct {
	whole  string
	fields []field
	given  map[string]*string
}

// flags that every type has; a property of such a name has no flag of its own and is set with --provider-config.
func (p *providerConfig) define(fs *pflag.FlagSet, all []field) {
	p.given = map[string]*string{}
	for _, f := range all {
		if fs.Lookup(f.flag()) != nil {
			continue
		}
		doc := f.title
		if f.file {
			doc = strings.TrimSpace(doc + " (a file; - reads standard input)")
		}
		p.given[f.name] = fs.String(f.flag(), "", doc)
		p.fields = append(p.fields, f)
	}
}

// build returns the config; nil when nothing was given.
func (p *providerConfig) build(fs *pflag.FlagSet, in io.Reader) (json.RawMessage, error) {
	doc := map[string]any{}
	given := false
	if p.whole != "" {
		raw, err := readFile(p.whole, in)
		if err != nil {
			return nil, fmt.Errorf("--provider-config: %w", err)
		}
		tree, err := yamldoc.Decode(raw, p.text)
		if err != nil {
			return nil, usage("--provider-config: %s is no YAML or JSON object: %v", p.whole, err)
		}
		var ok bool
		if doc, ok = tree.(map[string]any); !ok {
			return nil, usage("--provider-config: %s is no YAML or JSON object", p.whole)
		}
		given = true
	}
	for _, f := range p.fields {
		if !fs.Changed(f.flag()) {
			continue
		}
		v, err := f.value(*p.given[f.name], in)
		if err != nil {
			return nil, err
		}
		doc[f.name], given = v, true
	}
	if !given {
		return nil, nil
	}
	return json.Marshal(doc)
}

// text says which scalars are what is written: what the type's schema has as text, and what is not plain.
func (p *providerConfig) text(path []string, tag, written string) bool {
	for _, f := range p.fields {
		if len(path) == 1 && f.name == path[0] && f.is("string") {
			return true
		}
	}
	return !plain(tag, written)
}

// plain says whether a scalar is a truth value, or a number that loses nothing as one: a token may be of digits alone.
func plain(tag, written string) bool {
	if tag == "!!bool" {
		return true
	}
	v, err := strconv.ParseFloat(written, 64)
	return err == nil && tag != "!!str" && strconv.FormatFloat(v, 'f', -1, 64) == written
}

// typed makes a command whose flags depend on the cluster type: the words are looked at for the type first, its schema
// is read from the server, and then they are parsed.
func (c *command) typed(cmd *cobra.Command, p *providerConfig, kindOf func(ctx context.Context, api *client.Client, args []string) (string, error), run func(ctx context.Context, api *client.Client, args []string) error) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.Flags().StringVar(&p.whole, "provider-config", "", "file with the whole provider config as YAML or JSON (- reads standard input)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return cmd.Help()
		}
		ctx := cmd.Context()
		// The server and the key may stand behind the command's own words.
		fs := cmd.Flags()
		first := pflag.NewFlagSet("", pflag.ContinueOnError)
		first.ParseErrorsAllowlist.UnknownFlags = true
		first.AddFlagSet(fs)
		first.SetOutput(&bytes.Buffer{})
		_ = first.Parse(args) // what is wrong is found below, when all flags are known
		api, err := c.connect()
		if err != nil {
			return err
		}
		kind, err := kindOf(ctx, api, first.Args())
		if err != nil {
			return err
		}
		types, err := call[client.ClusterTypeList](api.ListClusterTypes(ctx))
		if err != nil {
			return err
		}
		for _, t := range types.Items {
			if t.Type == kind && t.Served {
				p.define(fs, fields(t.ConfigSchema))
			}
		}
		reset(fs)
		if err := fs.Parse(args); err != nil {
			return usage("%v; `nagelfluh clusters types` lists the flags of each type", err)
		}
		if err := cmd.Root().PersistentPreRunE(cmd, nil); err != nil {
			return err
		}
		return run(ctx, api, fs.Args())
	}
	return cmd
}

// reset empties the repeatable flags, which the first look has filled.
func reset(fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			_ = list.Replace(nil)
		}
	})
}
