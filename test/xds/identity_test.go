package xds

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// meshCA is the certificate authority of a mesh.
type meshCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newMeshCA(t testing.TB) *meshCA {
	t.Helper()
	m := &meshCA{t: t, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "mesh"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	m.key = m.newKey()
	m.cert = m.sign(m.cert, m.cert, &m.key.PublicKey)
	return m
}

func (m *meshCA) newKey() *ecdsa.PrivateKey {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	return key
}

func (m *meshCA) sign(template, issuer *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	m.t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key, m.key)
	if err != nil {
		m.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		m.t.Fatal(err)
	}
	return cert
}

// identity returns a certificate for a service account.
func (m *meshCA) identity(account string) tls.Certificate {
	m.t.Helper()
	key := m.newKey()
	cert := m.sign(&x509.Certificate{
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/default/sa/" + account}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, m.cert, &key.PublicKey)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// server returns the TLS configuration of a server that requires client certificates.
func (m *meshCA) server(account string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(m.cert)
	return &tls.Config{Certificates: []tls.Certificate{m.identity(account)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

// client returns the TLS configuration of a sidecar that connects to another one.
func (m *meshCA) client(account string) *tls.Config {
	return &tls.Config{
		Certificates:       []tls.Certificate{m.identity(account)},
		NextProtos:         []string{"istio-http/1.1", "istio", "http/1.1"},
		InsecureSkipVerify: true, // mesh certificates have no host names; the test is about the server side
	}
}

// secrets returns the SDS secrets of a sidecar of the account.
func (m *meshCA) secrets(account string) []*tlsv3.Secret {
	m.t.Helper()
	cert := m.identity(account)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		m.t.Fatal(err)
	}
	return []*tlsv3.Secret{
		{Name: "default", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline("CERTIFICATE", cert.Certificate[0]), PrivateKey: inline("PRIVATE KEY", key),
		}}},
		{Name: "ROOTCA", Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline("CERTIFICATE", m.cert.Raw),
		}}},
	}
}

func inline(blockType string, der []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})}}
}
