// Package kubeconfig decides what of a kubeconfig may be used. It parses text strictly, resolves one context and
// rebuilds the result from an allow-list, so that nothing unforeseen gets through; what asks for more is refused with the
// field, the problem and the remedy.
//
// It is pure: it opens no file, resolves no name, starts no program and reads no environment.
package kubeconfig

import (
	"time"
)

// MaxSize is the largest text that is read, in bytes.
const MaxSize = 1 << 20

// Options are what the operator allows beyond the default.
type Options struct {
	// Context names the context to use; empty: the text's current one, or the only one.
	Context string
	// AllowInsecure allows insecure-skip-tls-verify, with a warning.
	AllowInsecure bool
	// AllowedProxies are the proxy URLs that a cluster may name, compared as text without a trailing slash.
	AllowedProxies []string
	// Now is used to judge the dates of credentials; zero: they are not judged.
	Now time.Time
}

// Result is what may be used of a kubeconfig. It holds secrets: it is never logged.
type Result struct {
	Context    string   // name of the context used
	Contexts   []string // names of all contexts, in their order
	Server     string   // https URL
	ServerName string   // name to verify the certificate against; empty: that of Server
	CA         []byte   // PEM; empty: the system's
	Insecure   bool     // the certificate is not verified
	ProxyURL   string   // empty: none
	Namespace  string   // of the context; empty: not said
	Token      string
	ClientCert []byte // PEM
	ClientKey  []byte // PEM
	// CertNotAfter and TokenNotAfter are when the client certificate and the token end; zero: there is none, or it does
	// not say.
	CertNotAfter, TokenNotAfter time.Time
	// Warnings are sentences for an admin: things that are allowed and worth knowing.
	Warnings []string
	// YAML is the kubeconfig rebuilt from the fields above: the form to store.
	YAML []byte
}

// String keeps the secrets of a result out of whatever prints it.
func (r Result) String() string { return "kubeconfig for " + r.Server }

// ExpiresAt is when the first of the credentials ends; zero: not known to end.
func (r Result) ExpiresAt() time.Time {
	if r.CertNotAfter.IsZero() || !r.TokenNotAfter.IsZero() && r.TokenNotAfter.Before(r.CertNotAfter) {
		return r.TokenNotAfter
	}
	return r.CertNotAfter
}

// Rebuild applies the policy to raw, which is YAML or JSON. Its only error is a *Refusal that lists every problem found,
// and no text of it quotes a secret.
func Rebuild(raw []byte, o Options) (Result, error) {
	p := &policy{o: o}
	root := p.parse(raw)
	if root == nil {
		return Result{}, p.refusal()
	}
	f := p.file(root)
	if len(p.problems) > 0 {
		return Result{}, p.refusal()
	}
	res := p.resolve(f)
	if len(p.problems) > 0 {
		return Result{}, p.refusal()
	}
	out, err := render(res)
	if err != nil {
		p.refuse(Malformed, nil, "", "the result cannot be written as YAML", flatten)
		return Result{}, p.refusal()
	}
	res.YAML = out
	return res, nil
}
