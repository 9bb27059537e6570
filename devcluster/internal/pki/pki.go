// Package pki makes the keys and certificates of one throw-away cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is generous: a cluster that was left running overnight still works.
const lifetime = 30 * 24 * time.Hour

// CA signs the certificates of a cluster. All files land in its folder.
type CA struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// New makes a CA and writes ca.crt into dir. The CA's key is never written.
func New(dir, name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: make the CA's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "devcluster " + name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("pki: make the CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: parse the CA: %w", err)
	}
	ca := &CA{dir: dir, cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	return ca, os.WriteFile(ca.File("ca.crt"), ca.PEM, 0o600)
}

// File returns the path of a file of this CA.
func (ca *CA) File(name string) string { return filepath.Join(ca.dir, name) }

// Issue writes <name>.crt and <name>.key, usable by servers on loopback and by
// clients alike, and at further addresses.
func (ca *CA) Issue(name, user string, addresses ...net.IP) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: make the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("pki: make the serial number of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    ca.cert.NotBefore,
		NotAfter:     ca.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  append([]net.IP{net.IPv4(127, 0, 0, 1)}, addresses...),
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return fmt.Errorf("pki: sign %s: %w", name, err)
	}
	if err := writePEM(ca.File(name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(ca.File(name+".key"), key)
}

// SigningKey writes <name>.key and <name>.pub: the pair with which the API
// server signs and checks the tokens of ServiceAccounts.
func (ca *CA) SigningKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: make %s: %w", name, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("pki: encode %s: %w", name, err)
	}
	if err := writePEM(ca.File(name+".pub"), "PUBLIC KEY", der); err != nil {
		return err
	}
	return writeKey(ca.File(name+".key"), key)
}

// Token returns a fresh random bearer token.
func Token() string {
	raw := make([]byte, 24)
	_, _ = rand.Read(raw) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(raw)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: encode %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
