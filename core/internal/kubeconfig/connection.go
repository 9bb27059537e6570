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
		p.refuse(Malformed, c.in["tls-server-name"], c.field+".tls-server-name", "is no host name", "give a name of the certificate, such as kubernetes.default.svc")
	}
	res.CA = p.caBundle(c, "certificate-authority-data")
	res.Insecure = p.flag(c, "insecure-skip-tls-verify")
	if res.Insecure {
		field, node := c.field+".insecure-skip-tls-verify", c.in["insecure-skip-tls-verify"]
		switch {
		case !blank(c.in["certificate-authority-data"]):
			p.refuse(Contradiction, node, field, "contradicts certificate-authority-data, which stands beside it", "remove one of the two")
		case !p.o.AllowInsecure:
			p.refuse(Insecure, node, field, "is not allowed by the operator", "give the cluster's CA in certificate-authority-data")
		default:
			res.Warnings = append(res.Warnings, "The cluster's certificate is not verified: whoever is in between can read and change everything.")
		}
	}
	if proxy := p.value(c, "proxy-url"); proxy != "" {
		if !slices.ContainsFunc(p.o.AllowedProxies, func(s string) bool { return strings.TrimRight(s, "/") == strings.TrimRight(proxy, "/") }) {
			p.refuse(Proxy, c.in["proxy-url"], c.field+".proxy-url", "names a proxy that the operator does not list", "remove it, or ask the operator to list it")
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
		p.refuse(Missing, node, field, "is not set", serverURL)
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		p.refuse(Address, node, field, "is no URL", serverURL)
	case u.User != nil:
		p.refuse(Password, node, field, "holds a user name or password", useToken)
	case u.Scheme != "https":
		p.refuse(Address, node, field, "is not https", "use the https address of the API server, such as https://host:6443")
	case u.Hostname() == "" || !hostText(u.Hostname()) || oddHost(u.Hostname()):
		p.refuse(Address, node, field, "names no host", serverURL)
	case u.Port() != "" && !portText(u.Port()) || strings.HasSuffix(u.Host, ":"):
		p.refuse(Address, node, field, "has a port that is none", "give a number from 1 to 65535")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		p.refuse(Address, node, field, "has a query or fragment", removeIt)
	case slices.Contains(strings.Split(u.Path, "/"), ".."):
		p.refuse(Address, node, field, "has .. in its path", removeIt)
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

// oddHost says whether a host is an address in a form that some readers take for one and others do not, such as
// 2130706433, 127.1 or 0x7f.0.0.1: it looks like a name and passes by checks of addresses.
func oddHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	if strings.Contains(host, ":") {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	hex, isHex := strings.CutPrefix(last, "0x")
	return strings.Trim(last, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == ""
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
