// Package certs creates the certificates of the comparison.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// The names of certificates. Each one has a file NAME.pem with the certificate and a file NAME.key
// with its key.
const (
	CA      = "ca"       // issues the others, except Other
	Origin  = "origin"   // for origin.test, *.wild.test and 127.0.0.1
	ServerA = "a"        // for a.test and 127.0.0.1
	ServerB = "b"        // for b.test and *.b.test
	Client  = "client"   // with the URI spiffe://test/client
	Expired = "expired"  // a client's
	OtherCA = "other-ca" // issues Other
	Other   = "other"    // a client's
)

// spec describes a certificate.
type spec struct {
	name, issuer string
	names        []string
	uri          string
	expired      bool
}

func specs() []spec {
	return []spec{
		{name: CA},
		{name: OtherCA},
		{name: Origin, issuer: CA, names: []string{"origin.test", "*.wild.test"}},
		{name: ServerA, issuer: CA, names: []string{"a.test"}},
		{name: ServerB, issuer: CA, names: []string{"b.test", "*.b.test"}},
		{name: Client, issuer: CA, names: []string{"client.test"}, uri: "spiffe://test/client"},
		{name: Expired, issuer: CA, names: []string{"client.test"}, expired: true},
		{name: Other, issuer: OtherCA, names: []string{"client.test"}, uri: "spiffe://test/client"},
	}
}

// issued is a certificate with its key.
type issued struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Write creates all certificates in a directory.
func Write(dir string) error {
	created := map[string]issued{}
	for i, s := range specs() {
		c, err := s.create(int64(i+1), created)
		if err != nil {
			return err
		}
		created[s.name] = c
		key, err := x509.MarshalPKCS8PrivateKey(c.key)
		if err != nil {
			return err
		}
		if err := writePEM(filepath.Join(dir, s.name+".pem"), "CERTIFICATE", c.certificate.Raw); err != nil {
			return err
		}
		if err := writePEM(filepath.Join(dir, s.name+".key"), "PRIVATE KEY", key); err != nil {
			return err
		}
	}
	return nil
}

func (s *spec) create(serial int64, issuers map[string]issued) (issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return issued{}, err
	}
	end := time.Now().Add(24 * time.Hour)
	if s.expired {
		end = time.Now().Add(-time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: s.name}, DNSNames: s.names,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: end, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if s.uri != "" {
		uri, err := url.Parse(s.uri)
		if err != nil {
			return issued{}, err
		}
		template.URIs = []*url.URL{uri}
	}
	if s.name == ServerA || s.name == Origin {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	parent, signer := template, crypto.Signer(key)
	if s.issuer == "" {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	} else {
		parent, signer = issuers[s.issuer].certificate, issuers[s.issuer].key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return issued{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	return issued{certificate, key}, err
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Load returns a certificate of a directory with its key.
func Load(dir, name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
}
