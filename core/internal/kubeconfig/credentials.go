package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// soon is how long before the end of a client certificate the admin is told.
const soon = 30 * 24 * time.Hour

// user judges what to connect with. No message repeats any of it.
func (p *policy) user(u named, res *Result) {
	res.Token = p.token(u)
	cert, key := p.pemData(u, "client-certificate-data"), p.pemData(u, "client-key-data")
	switch {
	case cert == nil && key == nil:
		if res.Token == "" && blank(u.in["client-certificate-data"]) && blank(u.in["client-key-data"]) && blank(u.in["token"]) {
			res.Warnings = append(res.Warnings, "The user has no credentials: the cluster will see an anonymous caller.")
		}
	case key == nil:
		if blank(u.in["client-key-data"]) {
			p.refuse(u.node, u.field+".client-key-data", "is missing beside client-certificate-data", embedFiles)
		}
	case cert == nil:
		if blank(u.in["client-certificate-data"]) {
			p.refuse(u.node, u.field+".client-certificate-data", "is missing beside client-key-data", embedFiles)
		}
	default:
		p.keyPair(u, cert, key, res)
	}
}

func (p *policy) token(u named) string {
	token := p.value(u, "token")
	for i := 0; i < len(token); i++ {
		if token[i] <= ' ' || token[i] > '~' {
			p.refuse(u.in["token"], u.field+".token", "has a space or another character that no token has", "copy the token again, in one line")
			return ""
		}
	}
	return token
}

func (p *policy) keyPair(u named, cert, key []byte, res *Result) {
	field := u.field + ".client-certificate-data"
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		p.refuse(u.in["client-certificate-data"], field, "and client-key-data are no pair of certificate and key", embedFiles)
		return
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			p.refuse(u.in["client-certificate-data"], field, "is no certificate", embedFiles)
			return
		}
	}
	res.ClientCert, res.ClientKey, res.CertNotAfter = cert, key, leaf.NotAfter.UTC()
	date := res.CertNotAfter.Format(time.DateOnly)
	switch now := p.o.Now; {
	case now.IsZero():
	case now.After(leaf.NotAfter):
		p.refuse(u.in["client-certificate-data"], field, "expired on "+date, "get a new client certificate, or use the token of a ServiceAccount")
	case now.Add(soon).After(leaf.NotAfter):
		res.Warnings = append(res.Warnings, fmt.Sprintf("The client certificate expires on %s.", date))
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
			p.refuse(c.in[key], c.field+"."+key, "holds something other than certificates", "give the CA certificates alone")
			return nil
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			p.refuse(c.in[key], c.field+"."+key, "holds a certificate that cannot be read", "")
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
		p.refuse(node, field, "is no base64", "copy it again, whole")
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
			p.refuse(node, field, "cannot be read", "")
			return nil
		}
	}
	if out.Len() == 0 {
		p.refuse(node, field, "holds no PEM block", "it is the base64 of a PEM file")
		return nil
	}
	return out.Bytes()
}
