package kueue

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates are those that Kueue's certificate management would make, except
// that the server's is also good for 127.0.0.1. It takes them as its own if they
// are RSA, named as it names them, and good for another three months.
type certificates struct {
	caCert, caKey, cert, key []byte
}

func newCertificates(dir string) (*certificates, error) {
	caKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("kueue: make the CA's key: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("kueue: make the server's key: %w", err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "kueue-ca", Organization: []string{"kueue"}},
		DNSNames:     []string{"kueue-ca"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: serviceName},
		DNSNames:     []string{serviceName + "." + namespace + ".svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("kueue: make the CA: %w", err)
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("kueue: sign the server's certificate: %w", err)
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	made := &certificates{
		caCert: block("CERTIFICATE", caDER), caKey: block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(caKey)),
		cert: block("CERTIFICATE", serverDER), key: block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)),
	}
	for name, text := range map[string][]byte{"tls.crt": made.cert, "tls.key": made.key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, fmt.Errorf("kueue: %w", err)
		}
	}
	return made, nil
}
