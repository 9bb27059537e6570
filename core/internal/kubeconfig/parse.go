package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of what is walked. A kubeconfig of a hundred clusters stays far below them.
const (
	maxNodes = 200_000
	maxDepth = 32
	maxNames = 1000 // clusters, users or contexts in one text
)

// parse returns the one mapping that the text holds, or nil after a refusal. The YAML library builds its nodes without
// following aliases, so a text of MaxSize costs memory in proportion to its size only.
func (p *policy) parse(raw []byte) *yaml.Node {
	switch {
	case len(raw) > MaxSize:
		p.refuse(Oversized, nil, "", fmt.Sprintf("the text is larger than the %d bytes allowed", MaxSize), reduce)
		return nil
	case len(bytes.TrimSpace(raw)) == 0:
		p.refuse(Unreadable, nil, "", "the text is empty", flatten)
		return nil
	case !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0: // UTF-16 without a mark is full of zero bytes
		p.refuse(Unreadable, nil, "", "the text is not UTF-8", "save it as UTF-8")
		return nil
	case monstrous(raw):
		p.refuse(Oversized, nil, "", "the text is nested too deeply or has too many entries for a kubeconfig", reduce)
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		p.syntax(err)
		return nil
	}
	for more := true; more; {
		var next yaml.Node
		switch err := decoder.Decode(&next); {
		case err == nil && !isNull(&next):
			p.refuse(Ambiguous, &next, "", "the text holds several YAML documents", "keep one document")
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			p.syntax(err)
			return nil
		default:
			more = err == nil
		}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		p.refuse(Unreadable, &doc, "", "the text is no YAML or JSON mapping", flatten)
		return nil
	}
	root := doc.Content[0]
	w := walk{p: p, left: maxNodes}
	if !w.check(root, "", 0, nil) {
		return nil
	}
	return root
}

// monstrous looks for what no kubeconfig has before the parser spends time on it: runs of opening brackets, which it
// would recurse into, and tens of thousands of entries, each of which costs it far more memory than it has bytes.
func monstrous(raw []byte) bool {
	const (
		maxBrackets = 1000
		maxEntries  = 50_000
	)
	depth, entries := 0, 0
	for _, c := range raw {
		switch c {
		case '[', '{':
			if depth++; depth > maxBrackets {
				return true
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case ':', ',', '-', '?', '&', '*':
			if entries++; entries > maxEntries {
				return true
			}
		}
	}
	return false
}

var syntaxLine = regexp.MustCompile(`line (\d+)`)

// syntax reports where the parser stopped and nothing of what it said else: its messages quote the text.
func (p *policy) syntax(err error) {
	line := 0
	if m := syntaxLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	p.refuse(Unreadable, &yaml.Node{Line: line}, "", "the text is neither valid YAML nor valid JSON", "check the indentation and quotes there")
}

func isNull(doc *yaml.Node) bool {
	return doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null"
}

// walk visits every node as a reader would see it, aliases followed, with a budget that an alias bomb runs through.
type walk struct {
	p    *policy
	left int
}

func (w *walk) check(n *yaml.Node, field string, depth int, above []*yaml.Node) bool {
	w.left--
	if w.left < 0 || depth > maxDepth {
		w.p.refuse(Oversized, n, field, "aliases or nesting make the text far larger than a kubeconfig", "write the values out without anchors")
		return false
	}
	if !w.plain(n, field) {
		return false
	}
	switch n.Kind {
	case yaml.AliasNode:
		for _, a := range above {
			if a == n.Alias {
				w.p.refuse(Oversized, n, field, "an alias contains itself", "write the values out without anchors")
				return false
			}
		}
		return w.check(n.Alias, field, depth+1, above)
	case yaml.MappingNode:
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Kind != yaml.ScalarNode || key.Value == "<<" {
				w.p.refuse(Malformed, key, field, "a key is no plain text", "write the values out without merge keys")
				return false
			}
			if !w.plain(key, field) {
				return false
			}
			name := join(field, keyText(key.Value))
			if seen[key.Value] {
				w.p.refuse(Ambiguous, key, name, "the key stands there twice", "keep one of the two")
				return false
			}
			seen[key.Value] = true
			if !w.check(value, name, depth+1, append(above, n)) {
				return false
			}
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if !w.check(item, fmt.Sprintf("%s[%d]", field, i), depth+1, append(above, n)) {
				return false
			}
		}
	}
	return true
}

// plain refuses a node with a tag: it would mean one thing here and another to a reader that knows the tag.
func (w *walk) plain(n *yaml.Node, field string) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	w.p.refuse(Malformed, n, field, "has a YAML tag", "write the value itself, without !")
	return false
}

// keyText keeps what a key may show of itself in a message. One that is no field name could be a misplaced secret, as in
// token:secret with the blank forgotten.
func keyText(key string) string {
	if len(key) > 40 {
		return "(a long key)"
	}
	for _, c := range key {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return "(a key of other characters)"
		}
	}
	return key
}

// unknownRemedy is what to do about a field that nobody has judged.
func unknownRemedy(key string) string {
	if strings.Contains(key, ":") {
		return "put a blank behind the colon"
	}
	return removeIt
}

func join(parent, child string) string {
	if parent == "" {
		return child
	}
	return parent + "." + child
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
