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
	// JSON first: YAML does not know all of its escapes.
	value, problem, err := parseJSON(text)
	if err != nil {
		value, problem = parseYAML(text)
	}
	if problem != "" {
		return nil, problem
	}
	doc, ok := value.(map[string]any)
	if !ok {
		return nil, "The kubeconfig is not a mapping; paste the whole file."
	}
	return doc, ""
}

// parseJSON reads a text that is JSON; an error says that it is none, a problem what is wrong with it.
func parseJSON(text []byte) (value any, problem string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if value, problem, err = jsonValue(decoder, text, 0); err != nil || problem != "" {
		return nil, problem, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, "", errors.New("more than one document")
	}
	return value, "", nil
}

// jsonValue reads one value. Unlike json.Unmarshal it takes no key twice.
func jsonValue(decoder *json.Decoder, text []byte, depth int) (value any, problem string, err error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, "", err
	}
	line := func() int { return 1 + bytes.Count(text[:decoder.InputOffset()], []byte("\n")) }
	if depth > maxDepth {
		return nil, fmt.Sprintf("The kubeconfig nests too deep at line %d.", line()), nil
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			item, problem, err := jsonValue(decoder, text, depth+1)
			if err != nil || problem != "" {
				return nil, problem, err
			}
			list = append(list, item)
		}
		_, err = decoder.Token()
		return list, "", err
	case json.Delim('{'):
		out := map[string]any{}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, "", err
			}
			name, _ := key.(string) // the decoder lets nothing else pass
			if _, twice := out[name]; twice {
				return nil, fmt.Sprintf("The kubeconfig has a key twice; the second one is at line %d.", line()), nil
			}
			value, problem, err := jsonValue(decoder, text, depth+1)
			if err != nil || problem != "" {
				return nil, problem, err
			}
			out[name] = value
		}
		_, err = decoder.Token()
		return out, "", err
	}
	return token, "", nil
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
	return (&unfolding{left: maxNodes}).plain(&node, 0)
}

// maxNodes bounds what a kubeconfig unfolds into: a few aliases can stand for gigabytes.
const maxNodes = 100_000

// unfolding is one document on its way to plain values.
type unfolding struct{ left int }

// plain turns a node into plain values. Repeated keys are refused, of which readers see different ones. A number stays the text that was written: a kubeconfig has no numbers, but
// names and tokens that look like some.
func (u *unfolding) plain(node *yaml.Node, depth int) (any, string) {
	if depth > maxDepth {
		return nil, fmt.Sprintf("The kubeconfig nests too deep at line %d.", node.Line)
	}
	if u.left--; u.left < 0 {
		return nil, fmt.Sprintf("The kubeconfig's aliases unfold into too much at line %d; write the values out.", node.Line)
	}
	switch node.Kind {
	case yaml.DocumentNode:
		return u.plain(node.Content[0], depth)
	case yaml.MappingNode:
		return u.mapping(node, depth)
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			value, problem := u.plain(item, depth+1)
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
		return u.plain(node.Alias, depth+1) // one that holds itself nests too deep
	}
	return nil, fmt.Sprintf("The kubeconfig has a value of an unusual kind at line %d; write it as text.", node.Line)
}

func (u *unfolding) mapping(node *yaml.Node, depth int) (any, string) {
	out := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, fmt.Sprintf("The kubeconfig has a key at line %d that is not text.", key.Line)
		}
		if _, twice := out[key.Value]; twice {
			return nil, fmt.Sprintf("The kubeconfig has a key twice; the second one is at line %d.", key.Line)
		}
		value, problem := u.plain(node.Content[i+1], depth+1)
		if problem != "" {
			return nil, problem
		}
		out[key.Value] = value
	}
	return out, ""
}
