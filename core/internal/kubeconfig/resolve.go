package kubeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// remedies of fields that kubectl knows and the policy refuses.
const (
	useToken   = "use the token of a ServiceAccount instead"
	embedFiles = "embed the files: kubectl config view --flatten --minify (minikube: minikube start --embed-certs)"
)

// refused says what is wrong with a field that is known and never allowed. Fields that are neither here nor read in
// resolve are refused as unknown.
var refused = map[string]struct{ problem, remedy string }{
	"exec":                  {"would start a program on the server", useToken},
	"auth-provider":         {"would start a login on the server", useToken},
	"tokenFile":             {"is the path of a file on another machine", "put the token itself into token"},
	"certificate-authority": {"is the path of a file on another machine", embedFiles},
	"client-certificate":    {"is the path of a file on another machine", embedFiles},
	"client-key":            {"is the path of a file on another machine", embedFiles},
	"username":              {"is basic authentication, which clusters no longer take", useToken},
	"password":              {"is basic authentication, which clusters no longer take", useToken},
	"as":                    {"would act as another user", "use the credentials of that account itself"},
	"as-uid":                {"would act as another user", "use the credentials of that account itself"},
	"as-groups":             {"would act as another user", "use the credentials of that account itself"},
	"as-user-extra":         {"would act as another user", "use the credentials of that account itself"},
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
		p.refuse(ctx.in["namespace"], ctx.field+".namespace", "is no name of a namespace", "")
	}

	if c, found := p.entry(f.clusters, ctx, "cluster"); found {
		p.onlyFields(c, clusterFields)
		p.cluster(c, &res)
	}
	if blank(ctx.in["user"]) {
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
		p.refuse(nil, "contexts", "there is no context", "paste the output of: kubectl config view --flatten --minify")
	case want != "":
		if c, ok := find(f.contexts, want); ok {
			return c, true
		}
		p.contexts = names(f.contexts)
		p.refuse(node, field, "names no context of this text", "choose one of "+list)
	case len(f.contexts) == 1:
		return f.contexts[0], true
	default:
		p.contexts = names(f.contexts)
		p.refuse(nil, "current-context", "is not set and there are several contexts", "choose one of "+list)
	}
	return named{}, false
}

// entry finds the cluster or user that a context names.
func (p *policy) entry(list []named, ctx named, key string) (named, bool) {
	name, _ := p.text(ctx.in[key], ctx.field+"."+key)
	if name == "" {
		p.refuse(ctx.node, ctx.field+"."+key, "is not set", "")
		return named{}, false
	}
	e, ok := find(list, name)
	if !ok {
		p.refuse(ctx.in[key], ctx.field+"."+key, fmt.Sprintf("names no entry of %ss", key), "paste the output of: kubectl config view --flatten --minify")
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
		value := e.in[key]
		known, isKnown := refused[key]
		switch {
		case isKnown && blank(value):
		case isKnown:
			p.refuse(value, e.field+"."+key, known.problem, known.remedy)
		default:
			p.refuse(value, e.field+"."+keyText(key), "is a field that is not allowed", "remove it")
		}
	}
}

// blank says whether a field holds nothing: null, an empty text or an empty list.
func blank(n *yaml.Node) bool {
	return null(n) || n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) == "" || n.Kind == yaml.SequenceNode && len(n.Content) == 0
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
