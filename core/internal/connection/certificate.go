package connection

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// tlsText says what is wrong with the server's certificate, with its names or dates.
func (r *run) tlsText(err error) (message, remedy string) {
	var (
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &host):
		return fmt.Sprintf("The certificate of %s is for %s and not for %s.", r.place(), names(host.Certificate), host.Host),
			"Use one of the certificate's names in server, or name it in tls-server-name."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().Before(invalid.Cert.NotBefore):
		return fmt.Sprintf("The certificate of %s is not valid before %s; here it is %s.", r.place(), date(invalid.Cert.NotBefore), date(time.Now())),
			"Wait, or set the clock of the machine that is wrong."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("The certificate of %s expired on %s; here it is %s.", r.place(), date(invalid.Cert.NotAfter), date(time.Now())),
			"Renew the certificate of the API server."
	case errors.As(err, &authority):
		issuer := "an unknown authority"
		if authority.Cert != nil && authority.Cert.Issuer.String() != "" {
			issuer = "the authority " + authority.Cert.Issuer.String()
		}
		return fmt.Sprintf("The certificate of %s is from %s, which the kubeconfig does not name.", r.place(), issuer),
			"Put the CA of the cluster into certificate-authority-data: it is in a kubeconfig of the cluster itself."
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return r.place() + " answers in plain HTTP, without TLS.", "Give the https address of the API server; it is often another port."
	case errors.As(err, &record):
		return r.place() + " does not speak TLS.", "Give the address and port of the API server."
	}
	return fmt.Sprintf("TLS with %s failed: %s.", r.place(), bare(err)), "Check that address and port are those of the API server, and its certificate."
}

// names lists what a certificate is for, bounded.
func names(c *x509.Certificate) string {
	all := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	const most = 10
	switch {
	case len(all) == 0:
		return "no name at all"
	case len(all) > most:
		all = append(all[:most], "…")
	}
	return strings.Join(all, ", ")
}
