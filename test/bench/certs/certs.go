// Package certs creates the certificates of a TLS run: one authority, and one certificate for
// 127.0.0.1 that both the server and the client present.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Dir is the directory of the certificate files.
type Dir string

// CA returns the path of the authority's certificate. All files are PEM.
func (d Dir) CA() string { return filepath.Join(string(d), "ca.pem") }

// Certificate returns the path of the certificate.
func (d Dir) Certificate() string { return filepath.Join(string(d), "cert.pem") }

// Key returns the path of the certificate's private key.
func (d Dir) Key() string { return filepath.Join(string(d), "cert.key") }

// CertificateAndKey returns the path of the file with certificate and key, the format that haproxy
// reads.
func (d Dir) CertificateAndKey() string { return filepath.Join(string(d), "cert-and-key.pem") }

// Write creates the files. The keys are ECDSA P-256; the certificates are valid for one day.
func (d Dir) Write() error {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench authority"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "bench"}, NotAfter: authority.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	root, rootErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(rootErr, keyErr); err != nil {
		return err
	}
	caDER, caErr := x509.CreateCertificate(rand.Reader, authority, authority, &root.PublicKey, root)
	certDER, certErr := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, root)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(caErr, certErr, err); err != nil {
		return err
	}
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return errors.Join(
		os.WriteFile(d.CA(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), 0o600),
		os.WriteFile(d.Certificate(), certText, 0o600),
		os.WriteFile(d.Key(), keyText, 0o600),
		os.WriteFile(d.CertificateAndKey(), append(certText, keyText...), 0o600),
	)
}

// Client returns the TLS configuration of a client. It resumes no session and offers only TLS 1.3
// with X25519, so that all servers do the same work.
func (d Dir) Client() (*tls.Config, error) {
	ca, err := os.ReadFile(d.CA())
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(d.Certificate(), d.Key())
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair},
		RootCAs: x509.NewCertPool(), CurvePreferences: []tls.CurveID{tls.X25519},
	}
	if !c.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate", d.CA())
	}
	return c, nil
}
