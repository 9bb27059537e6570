// Package yamldoc reads YAML that people write, strictly and without surprises: one document, no key twice, and text
// where text is meant. YAML would read a variable named N as false and a password 0123 as 83.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Decode reads one document into what encoding/json would give: map[string]any, []any, string, float64, bool, nil. Keys
// are taken as they are written. So are scalars for which text says so; it is asked with the path of each, list items
// by the name "[]", and with its tag, such as !!int, and how it is written.
func Decode(raw []byte, text func(path []string, tag, written string) bool) (any, error) {
	in := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document in it")
	}
	return decoder{text: text, left: new(maxNodes)}.value(&doc, nil)
}

type decoder struct {
	text  func(path []string, tag, written string) bool
	depth int
	left  *int // nodes
}

// Bounds, so that an alias that holds itself or that multiplies is an error.
const (
	maxDepth = 50
	maxNodes = 1_000_000
)

func (d decoder) value(n *yaml.Node, path []string) (any, error) {
	if d.depth++; d.depth > maxDepth {
		return nil, fmt.Errorf("line %d: nested too deeply", n.Line)
	}
	if *d.left--; *d.left < 0 {
		return nil, fmt.Errorf("line %d: aliases make it too large", n.Line)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return d.value(n.Content[0], path)
	case yaml.AliasNode:
		return d.value(n.Alias, path)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := d.value(item, append(path[:len(path):len(path)], "[]"))
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return d.mapping(n, path)
	}
	if n.Tag == "!!null" {
		return nil, nil
	}
	if d.text(path, n.Tag, n.Value) {
		return n.Value, nil
	}
	return scalar(n)
}

func (d decoder) mapping(n *yaml.Node, path []string) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key is no plain word", key.Line)
		}
		if _, twice := out[key.Value]; twice {
			return nil, fmt.Errorf("line %d: key %q is already set", key.Line, key.Value)
		}
		v, err := d.value(n.Content[i+1], append(path[:len(path):len(path)], key.Value))
		if err != nil {
			return nil, err
		}
		out[key.Value] = v
	}
	return out, nil
}

func scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!int", "!!float":
		var v float64
		err := n.Decode(&v)
		return v, err
	case "!!bool":
		var v bool
		err := n.Decode(&v)
		return v, err
	}
	return n.Value, nil
}
