package kubeconfig

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// named is one entry of clusters, users or contexts.
type named struct {
	name  string
	field string // path of the inner mapping
	node  *yaml.Node
	in    map[string]*yaml.Node // fields of the inner mapping
	keys  map[string]*yaml.Node // where their names stand
}

// file is a kubeconfig taken apart, nothing judged yet but its form.
type file struct {
	current     string
	currentNode *yaml.Node
	clusters    []named
	users       []named
	contexts    []named
}

// file takes the root apart. Top-level keys that kubectl knows and Nagelfluh has no use for are left out; any other one
// is refused, for it is a misspelling or something that nobody has judged.
func (p *policy) file(root *yaml.Node) file {
	var f file
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i].Value, follow(root.Content[i+1])
		switch key {
		case "apiVersion":
			if s, ok := p.text(value, key); ok && s != "v1" && s != "" {
				p.refuse(Malformed, value, key, "is not v1", "use a kubeconfig of version v1")
			}
		case "kind":
			if s, ok := p.text(value, key); ok && s != "Config" && s != "" {
				p.refuse(Malformed, value, key, "is not Config", "paste a kubeconfig, not another kind of object")
			}
		case "current-context":
			f.current, _ = p.text(value, key)
			f.currentNode = value
		case "clusters":
			f.clusters = p.list(value, key, "cluster")
		case "users":
			f.users = p.list(value, key, "user")
		case "contexts":
			f.contexts = p.list(value, key, "context")
		case "preferences", "extensions":
		default:
			p.refuse(Unknown, root.Content[i], keyText(key), "is no field of a kubeconfig", unknownRemedy(key))
		}
	}
	return f
}

// list reads [{name: …, <inner>: {…}}].
func (p *policy) list(n *yaml.Node, field, inner string) []named {
	if null(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.refuse(Malformed, n, field, "is no list", "write it as a list of entries, each with a name")
		return nil
	}
	if len(n.Content) > maxNames {
		p.refuse(Oversized, n, field, fmt.Sprintf("has more than %d entries", maxNames), reduce)
		return nil
	}
	out := make([]named, 0, len(n.Content))
	seen := map[string]bool{}
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", field, i)
		item = follow(item)
		if item.Kind != yaml.MappingNode {
			p.refuse(Malformed, item, path, "is no mapping", "write it as a name and a "+inner)
			continue
		}
		e := named{field: path + "." + inner, node: item}
		for i := 0; i+1 < len(item.Content); i += 2 {
			key, value := item.Content[i].Value, follow(item.Content[i+1])
			switch key {
			case "name":
				e.name, _ = p.text(value, path+".name")
			case inner:
				if !null(value) && value.Kind != yaml.MappingNode {
					p.refuse(Malformed, value, e.field, "is no mapping", "write it as fields and their values")
				} else if !null(value) {
					e.in, e.keys = fields(value)
					e.node = value
				}
			default:
				p.refuse(Unknown, item.Content[i], path+"."+keyText(key), "is no field of a kubeconfig", unknownRemedy(key))
			}
		}
		if seen[e.name] {
			p.refuse(Ambiguous, item, path+".name", "is used twice in "+field, "keep one of the two")
		}
		seen[e.name] = true
		out = append(out, e)
	}
	return out
}

// fields returns a mapping's values, aliases followed, and its keys. Duplicates were refused before.
func fields(n *yaml.Node) (values, keys map[string]*yaml.Node) {
	values, keys = make(map[string]*yaml.Node, len(n.Content)/2), make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		values[key.Value], keys[key.Value] = follow(n.Content[i+1]), key
	}
	return values, keys
}

// text returns a scalar's text. Numbers and booleans are no text, but a token of digits is common: they are taken as
// they are written.
func (p *policy) text(n *yaml.Node, field string) (string, bool) {
	if null(n) {
		return "", true
	}
	if n.Kind != yaml.ScalarNode {
		p.refuse(Malformed, n, field, "is no text", "give a single value")
		return "", false
	}
	return n.Value, true
}

// value returns the trimmed text of one field of an entry; absent is empty.
func (p *policy) value(e named, key string) string {
	s, _ := p.text(e.in[key], e.field+"."+key)
	return strings.TrimSpace(s)
}

func (p *policy) flag(e named, key string) bool {
	n := e.in[key]
	if null(n) {
		return false
	}
	var b bool
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
		p.refuse(Malformed, n, e.field+"."+key, "is neither true nor false", "write true or false, without quotes")
	}
	return b
}

func null(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func names(list []named) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.name
	}
	return out
}

func find(list []named, name string) (named, bool) {
	for _, e := range list {
		if e.name == name {
			return e, true
		}
	}
	return named{}, false
}
