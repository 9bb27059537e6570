package plugin

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// secretValues returns the texts under a config's secret fields. Without a schema every text counts as secret.
func secretValues(s *schema.Schema, config []byte) []string {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.UseNumber()
	var doc any
	if decoder.Decode(&doc) != nil {
		return nil
	}
	if s == nil {
		return texts(doc, nil)
	}
	var found []string
	for _, pointer := range s.Secrets() {
		found = under(doc, strings.Split(pointer, "/")[1:], found)
	}
	return found
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// under collects the texts at a pointer, whose step "*" stands for every item or entry.
func under(node any, steps []string, found []string) []string {
	if len(steps) == 0 {
		return texts(node, found)
	}
	every := steps[0] == "*"
	switch n := node.(type) {
	case map[string]any:
		for name, value := range n {
			if every || name == unescape.Replace(steps[0]) {
				found = under(value, steps[1:], found)
			}
		}
	case []any:
		for _, value := range n {
			if every {
				found = under(value, steps[1:], found)
			}
		}
	}
	return found
}

// texts collects every string and number below a node.
func texts(node any, found []string) []string {
	switch n := node.(type) {
	case string:
		return append(found, n)
	case json.Number:
		return append(found, n.String())
	case map[string]any:
		for _, value := range n {
			found = texts(value, found)
		}
	case []any:
		for _, value := range n {
			found = texts(value, found)
		}
	}
	return found
}
