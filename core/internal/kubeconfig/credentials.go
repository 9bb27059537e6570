package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// soon is how long before the end of credentials the admin is told.
const soon = 30 * 24 * time.Hour

// maxKey is the largest private key in PEM, which RSA of 16384 bits stays below. Larger ones are not read: a key of a few
// hundred kilobytes keeps a processor busy for a minute.
const maxKey = 16 << 10

const copyWhole = "copy it again, whole"

// user judges what to connect with. No message repeats any of it.
func (p *policy) user(u named, res *Result) {
	p.token(u, res)
	cert, key := p.pemData(u, "client-certificate-data"), p.pemData(u, "client-key-data")
	noCert, noKey := blank(u.in["client-certificate-data"]), blank(u.in["client-key-data"])
	switch {
	case noCert && noKey:
		if blank(u.in["token"]) {
			res.Warnings = append(res.Warnings, "The user has no credentials: the cluster will see an anonymous caller.")
		}
	case noKey:
		p.refuse(Missing, u.node, u.field+".client-key-data", "is missing beside client-certificate-data", embedFiles)
	case noCert:
		p.refuse(Missing, u.node, u.field+".client-certificate-data", "is missing beside client-key-data", embedFiles)
	case len(key) > maxKey:
		p.refuse(Oversized, u.in["client-key-data"], u.field+".client-key-data", "is larger than any private key", copyWhole)
	case cert != nil && key != nil:
		p.keyPair(u, cert, key, res)
	}
}

func (p *policy) token(u named, res *Result) {
	node, field := u.in["token"], u.field+".token"
	token := p.value(u, "token")
	for i := 0; i < len(token); i++ {
		if token[i] <= ' ' || token[i] > '~' {
			p.refuse(Malformed, node, field, "has a space or another character that no token has", "copy the token again, in one line")
			return
		}
	}
	res.Token, res.TokenNotAfter = token, tokenEnd(token)
	if !res.TokenNotAfter.IsZero() {
		p.end(node, field, "The token", res.TokenNotAfter, "get a new one from a ServiceAccount, best one that does not expire", res)
	}
}

// tokenEnd is the exp claim of a JSON Web Token; zero for any other token, and for one that does not end. Nothing is
// verified: that is the cluster's part.
func tokenEnd(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	const year10000 = 253402300800
	if json.Unmarshal(raw, &claims) != nil || claims.Exp <= 0 || claims.Exp >= year10000 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0).UTC()
}

// end refuses credentials that have ended and warns of those that soon will.
func (p *policy) end(node *yaml.Node, field, what string, at time.Time, remedy string, res *Result) {
	date := at.Format(time.DateOnly)
	if d := at.Sub(p.o.Now); d > -48*time.Hour && d < 48*time.Hour {
		date = at.Format("2006-01-02 15:04 MST")
	}
	switch now := p.o.Now; {
	case now.IsZero():
	case now.After(at):
		p.refuse(Expired, node, field, "expired on "+date, remedy)
	case now.Add(soon).After(at):
		res.Warnings = append(res.Warnings, fmt.Sprintf("%s expires on %s.", what, date))
	}
}

func (p *policy) keyPair(u named, cert, key []byte, res *Result) {
	field := u.field + ".client-certificate-data"
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		p.refuse(Malformed, u.in["client-certificate-data"], field, "and client-key-data are no pair of certificate and key", embedFiles)
		return
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			p.refuse(Malformed, u.in["client-certificate-data"], field, "is no certificate", copyWhole)
			return
		}
	}
	res.ClientCert, res.ClientKey, res.CertNotAfter = cert, key, leaf.NotAfter.UTC()
	p.end(u.in["client-certificate-data"], field, "The client certificate", res.CertNotAfter, "get a new client certificate, or use the token of a ServiceAccount", res)
	if p.o.Now.Before(leaf.NotBefore) && !p.o.Now.IsZero() {
		res.Warnings = append(res.Warnings, fmt.Sprintf("The client certificate is not valid before %s.", leaf.NotBefore.UTC().Format("2006-01-02 15:04 MST")))
	}
}

// caBundle returns the certificates of a CA field, re-encoded.
func (p *policy) caBundle(c named, key string) []byte {
	data := p.pemData(c, key)
	rest := data
	for len(rest) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			p.refuse(Malformed, c.in[key], c.field+"."+key, "holds something other than certificates", "give the CA certificates alone")
			return nil
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			p.refuse(Malformed, c.in[key], c.field+"."+key, "holds a certificate that cannot be read", copyWhole)
			return nil
		}
	}
	return data
}

// pemData returns the PEM blocks of a base64 field without anything around them; nil when the field is blank or refused.
func (p *policy) pemData(e named, key string) []byte {
	field, node := e.field+"."+key, e.in[key]
	text, ok := p.text(node, field)
	if !ok || strings.TrimSpace(text) == "" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		p.refuse(Malformed, node, field, "is no base64", copyWhole)
		return nil
	}
	var out bytes.Buffer
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		block.Headers = nil
		if err := pem.Encode(&out, block); err != nil {
			p.refuse(Malformed, node, field, "cannot be read", copyWhole)
			return nil
		}
	}
	if out.Len() == 0 {
		p.refuse(Malformed, node, field, "holds no PEM block", "it is the base64 of a PEM file")
		return nil
	}
	return out.Bytes()
}
