// Package certs makes the certificates of a run over TLS: one authority, and one
// certificate for 127.0.0.1 of it, which either side shows the other.
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

// Dir is a directory with the files.
type Dir string

// CA is the file of the authority's certificate, PEM like the others.
func (d Dir) CA() string { return filepath.Join(string(d), "ca.pem") }

// Certificate is the file of the certificate.
func (d Dir) Certificate() string { return filepath.Join(string(d), "own.pem") }

// Key is the file of its key.
func (d Dir) Key() string { return filepath.Join(string(d), "own.key") }

// Both is the file of certificate and key, as haproxy wants them.
func (d Dir) Both() string { return filepath.Join(string(d), "both.pem") }

// Write makes new files. Keys are of ECDSA P-256, good for a day.
func (d Dir) Write() error {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench authority"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "bench"}, NotAfter: authority.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	root, rootErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(rootErr, keyErr); err != nil {
		return err
	}
	ca, caErr := x509.CreateCertificate(rand.Reader, authority, authority, &root.PublicKey, root)
	cert, certErr := x509.CreateCertificate(rand.Reader, own, authority, &key.PublicKey, root)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(caErr, certErr, err); err != nil {
		return err
	}
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return errors.Join(
		os.WriteFile(d.CA(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), 0o600),
		os.WriteFile(d.Certificate(), certText, 0o600),
		os.WriteFile(d.Key(), keyText, 0o600),
		os.WriteFile(d.Both(), append(certText, keyText...), 0o600),
	)
}

// Client returns what a client needs. It resumes no session, and offers what all
// servers know, so that they do the same work: TLS 1.3 with X25519.
func (d Dir) Client() (*tls.Config, error) {
	ca, err := os.ReadFile(d.CA())
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(d.Certificate(), d.Key())
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", Certificates: []tls.Certificate{own},
		RootCAs: x509.NewCertPool(), CurvePreferences: []tls.CurveID{tls.X25519},
	}
	if !c.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate", d.CA())
	}
	return c, nil
}
