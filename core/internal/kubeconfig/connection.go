package kubeconfig

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// cluster judges where to connect to.
func (p *policy) cluster(c named, res *Result) {
	res.Server = p.server(c, res)
	res.ServerName = p.value(c, "tls-server-name")
	if !hostText(res.ServerName) {
		p.refuse(c.in["tls-server-name"], c.field+".tls-server-name", "is no host name", "")
	}
	res.CA = p.caBundle(c, "certificate-authority-data")
	res.Insecure = p.flag(c, "insecure-skip-tls-verify")
	if res.Insecure {
		field, node := c.field+".insecure-skip-tls-verify", c.in["insecure-skip-tls-verify"]
		switch {
		case !blank(c.in["certificate-authority-data"]):
			p.refuse(node, field, "contradicts certificate-authority-data, which stands beside it", "remove one of the two")
		case !p.o.AllowInsecure:
			p.refuse(node, field, "is not allowed by the operator", "give the cluster's CA in certificate-authority-data")
		default:
			res.Warnings = append(res.Warnings, "The cluster's certificate is not verified: whoever is in between can read and change everything.")
		}
	}
	if proxy := p.value(c, "proxy-url"); proxy != "" {
		if !slices.ContainsFunc(p.o.AllowedProxies, func(s string) bool { return strings.TrimRight(s, "/") == strings.TrimRight(proxy, "/") }) {
			p.refuse(c.in["proxy-url"], c.field+".proxy-url", "names a proxy that the operator does not list", "remove it, or ask the operator to list it")
		} else {
			res.ProxyURL = proxy
		}
	}
}

// server returns the normalised URL. Its text is not repeated in messages: it may hold a password.
func (p *policy) server(c named, res *Result) string {
	field, node := c.field+".server", c.in["server"]
	text := p.value(c, "server")
	if node == nil {
		node = c.node
	}
	if text == "" {
		p.refuse(node, field, "is not set", "give the URL of the API server, such as https://host:6443")
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		p.refuse(node, field, "is no URL", "give the URL of the API server, such as https://host:6443")
	case u.User != nil:
		p.refuse(node, field, "holds a user name or password", useToken)
	case u.Scheme != "https":
		p.refuse(node, field, "is not https", "use the https address of the API server, such as https://host:6443")
	case u.Hostname() == "" || !hostText(u.Hostname()):
		p.refuse(node, field, "names no host", "give the URL of the API server, such as https://host:6443")
	case u.Port() != "" && !portText(u.Port()) || strings.HasSuffix(u.Host, ":"):
		p.refuse(node, field, "has a port that is none", "")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		p.refuse(node, field, "has a query or fragment", "remove it")
	case slices.Contains(strings.Split(u.Path, "/"), ".."):
		p.refuse(node, field, "has .. in its path", "remove it")
	default:
		if local(u.Hostname()) {
			res.Warnings = append(res.Warnings, "The server address means the machine that Nagelfluh runs on. If the cluster runs elsewhere, use an address of it that can be reached from there.")
		}
		u.Path = strings.TrimRight(u.Path, "/")
		u.RawPath = ""
		return u.String()
	}
	return ""
}

// local says whether a host name means the machine itself.
func local(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "kubernetes.docker.internal" || host == "host.docker.internal" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsUnspecified())
}

// hostText says whether s has only characters that host names and addresses have; empty passes.
func hostText(s string) bool {
	if len(s) > 253 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != ':' && c != '_' {
			return false
		}
	}
	return true
}

func portText(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
