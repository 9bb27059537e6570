package kubeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Remedies that several problems share.
const (
	useToken   = "use the token of a ServiceAccount instead"
	embedFiles = "embed the files: kubectl config view --flatten --minify (minikube: minikube start --embed-certs)"
	flatten    = "paste the output of: kubectl config view --flatten --minify"
	reduce     = "reduce it with: kubectl config view --flatten --minify"
	removeIt   = "remove it"
	serverURL  = "give the URL of the API server, such as https://host:6443"
)

const (
	filePath  = "is the path of a file on another machine"
	actAs     = "would act as another user"
	basicAuth = "is basic authentication, which clusters no longer take"
	own       = "use the credentials of that account itself"
)

// refused says what is wrong with a field that is known and never allowed. Fields that are neither here nor read in
// resolve are refused as unknown.
var refused = map[string]struct {
	class           Class
	problem, remedy string
}{
	"exec":                  {Program, "would start a program on the server", useToken},
	"auth-provider":         {Program, "would start a login on the server", useToken},
	"tokenFile":             {File, filePath, "put the token itself into token"},
	"certificate-authority": {File, filePath, embedFiles},
	"client-certificate":    {File, filePath, embedFiles},
	"client-key":            {File, filePath, embedFiles},
	"username":              {Password, basicAuth, useToken},
	"password":              {Password, basicAuth, useToken},
	"as":                    {Impersonation, actAs, own},
	"as-uid":                {Impersonation, actAs, own},
	"as-groups":             {Impersonation, actAs, own},
	"as-user-extra":         {Impersonation, actAs, own},
}

// Fields that are read, and fields that say nothing about the connection.
var (
	clusterFields = []string{
		"server", "tls-server-name", "certificate-authority-data", "insecure-skip-tls-verify", "proxy-url", "disable-compression", "extensions",
	}
	userFields    = []string{"token", "client-certificate-data", "client-key-data", "extensions"}
	contextFields = []string{"cluster", "user", "namespace", "extensions"}
)

// resolve picks the context and judges it, its cluster and its user. The other entries are not used, so they are not judged.
func (p *policy) resolve(f file) Result {
	ctx, ok := p.context(f)
	if !ok {
		return Result{}
	}
	res := Result{Context: ctx.name, Contexts: names(f.contexts), Namespace: p.value(ctx, "namespace")}
	p.onlyFields(ctx, contextFields)
	if res.Namespace != "" && !dnsLabel(res.Namespace) {
		p.refuse(Malformed, ctx.in["namespace"], ctx.field+".namespace", "is no name of a namespace", "give lower-case letters, digits and dashes, at most 63")
	}

	if c, found := p.entry(f.clusters, ctx, "cluster"); found {
		p.onlyFields(c, clusterFields)
		p.cluster(c, &res)
	}
	if unset(ctx.in["user"]) {
		res.Warnings = append(res.Warnings, "The context names no user: the cluster will see an anonymous caller.")
	} else if u, found := p.entry(f.users, ctx, "user"); found {
		p.onlyFields(u, userFields)
		p.user(u, &res)
	}
	return res
}

// context returns the one to use: asked for, current, or the only one. It never picks one of several by itself.
func (p *policy) context(f file) (named, bool) {
	list := quoted(names(f.contexts))
	want, field, node := p.o.Context, "context", (*yaml.Node)(nil)
	if want == "" {
		want, field, node = f.current, "current-context", f.currentNode
	}
	switch {
	case len(f.contexts) == 0:
		p.refuse(Missing, nil, "contexts", "there is no context", flatten)
	case want != "":
		if c, ok := find(f.contexts, want); ok {
			return c, p.printable(c)
		}
		p.contexts = names(f.contexts)
		p.refuse(Missing, node, field, "names no context of this text", "choose one of "+list)
	case len(f.contexts) == 1:
		return f.contexts[0], p.printable(f.contexts[0])
	default:
		p.contexts = names(f.contexts)
		p.refuse(Ambiguous, node, "current-context", "is not set and there are several contexts", "choose one of "+list)
	}
	return named{}, false
}

// printable refuses a context whose name is empty or could play tricks on the terminal that it is shown on.
func (p *policy) printable(ctx named) bool {
	field := strings.TrimSuffix(ctx.field, ".context") + ".name"
	switch {
	case ctx.name == "":
		p.refuse(Missing, ctx.node, field, "is not set", "give the context a name")
	case strings.ContainsFunc(ctx.name, func(r rune) bool { return !unicode.IsPrint(r) }):
		p.refuse(Malformed, ctx.node, field, "has a character that cannot be shown", "rename it: kubectl config rename-context")
	default:
		return true
	}
	return false
}

// entry finds the cluster or user that a context names.
func (p *policy) entry(list []named, ctx named, key string) (named, bool) {
	field := ctx.field + "." + key
	name, ok := p.text(ctx.in[key], field)
	if !ok {
		return named{}, false
	}
	if name == "" {
		p.refuse(Missing, ctx.node, field, "is not set", flatten)
		return named{}, false
	}
	e, ok := find(list, name)
	if !ok {
		p.refuse(Missing, ctx.in[key], field, fmt.Sprintf("names no entry of %ss", key), flatten)
	}
	return e, ok
}

// onlyFields refuses every field that is not in allowed. A field that is there but empty says nothing and passes when it
// is a known one.
func (p *policy) onlyFields(e named, allowed []string) {
	for _, key := range slices.Sorted(maps.Keys(e.in)) {
		if slices.Contains(allowed, key) {
			continue
		}
		known, isKnown := refused[key]
		switch {
		case isKnown && unset(e.in[key]):
		case isKnown:
			p.refuse(known.class, e.keys[key], e.field+"."+key, known.problem, known.remedy)
		default:
			p.refuse(Unknown, e.keys[key], e.field+"."+keyText(key), "is a field that is not allowed", unknownRemedy(key))
		}
	}
}

// unset says whether a field holds nothing for any reader: null, an empty text or an empty list.
func unset(n *yaml.Node) bool {
	return null(n) || n.Kind == yaml.ScalarNode && n.Value == "" || n.Kind == yaml.SequenceNode && len(n.Content) == 0
}

// blank says whether a field holds nothing to connect with: nothing, or white space.
func blank(n *yaml.Node) bool {
	return unset(n) || n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) == ""
}

// quoted lists context names for a message, bounded.
func quoted(list []string) string {
	const most = 20
	texts := make([]string, 0, most)
	for i, s := range list {
		if i == most {
			texts = append(texts, fmt.Sprintf("… (%d in all)", len(list)))
			break
		}
		texts = append(texts, fmt.Sprintf("%.80q", s))
	}
	return strings.Join(texts, ", ")
}

func dnsLabel(s string) bool {
	if len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
