package kubeconfigprovider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds the nesting of a kubeconfig.
const maxDepth = 32

// atLine finds the line number in a parser's message; the rest of that message may quote the document.
var atLine = regexp.MustCompile(`line (\d+)`)

// parse reads YAML or JSON into plain values. It returns what is wrong as a sentence without content.
func parse(text []byte) (map[string]any, string) {
	if len(text) > MaxBytes {
		return nil, "The kubeconfig has more than 1 MiB; leave out contexts that are not needed."
	}
	var value any
	// JSON first: YAML does not know all of its escapes.
	if decodeJSON(text, &value) != nil {
		var problem string
		if value, problem = parseYAML(text); problem != "" {
			return nil, problem
		}
	}
	doc, ok := value.(map[string]any)
	if !ok {
		return nil, "The kubeconfig is not a mapping; paste the whole file."
	}
	return doc, ""
}

func decodeJSON(text []byte, into *any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

func parseYAML(text []byte) (any, string) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var node, more yaml.Node
	if err := decoder.Decode(&node); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, "The kubeconfig is empty."
		}
		if line := atLine.FindStringSubmatch(err.Error()); line != nil {
			return nil, fmt.Sprintf("The kubeconfig is neither YAML nor JSON; see line %s.", line[1])
		}
		return nil, "The kubeconfig is neither YAML nor JSON."
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, "The kubeconfig holds more than one document; keep one."
	}
	return plain(&node, 0)
}

// plain turns a node into plain values. Aliases are refused, since a few of them can stand for gigabytes; so are repeated
// keys, of which readers see different ones. A number stays the text that was written: a kubeconfig has no numbers, but
// names and tokens that look like some.
func plain(node *yaml.Node, depth int) (any, string) {
	if depth > maxDepth {
		return nil, fmt.Sprintf("The kubeconfig nests too deep at line %d.", node.Line)
	}
	switch node.Kind {
	case yaml.DocumentNode:
		return plain(node.Content[0], depth)
	case yaml.MappingNode:
		return mapping(node, depth)
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			value, problem := plain(item, depth+1)
			if problem != "" {
				return nil, problem
			}
			list[i] = value
		}
		return list, ""
	case yaml.ScalarNode:
		switch node.ShortTag() {
		case "!!null":
			return nil, ""
		case "!!bool":
			var value bool
			if node.Decode(&value) == nil {
				return value, ""
			}
		case "!!str", "!!int", "!!float", "!!timestamp":
			return node.Value, ""
		}
	case yaml.AliasNode:
		return nil, fmt.Sprintf("The kubeconfig has an alias at line %d; write the value out.", node.Line)
	}
	return nil, fmt.Sprintf("The kubeconfig has a value of an unusual kind at line %d; write it as text.", node.Line)
}

func mapping(node *yaml.Node, depth int) (any, string) {
	out := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, fmt.Sprintf("The kubeconfig has a key at line %d that is not text.", key.Line)
		}
		if _, twice := out[key.Value]; twice {
			return nil, fmt.Sprintf("The kubeconfig has a key twice; the second one is at line %d.", key.Line)
		}
		value, problem := plain(node.Content[i+1], depth+1)
		if problem != "" {
			return nil, problem
		}
		out[key.Value] = value
	}
	return out, ""
}
