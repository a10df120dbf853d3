// Package testpki creates certificate authorities and certificates for tests, so that the
// repository contains none. Only tests, and packages that support tests, import it.
package testpki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // the authority's certificate
}

// Leaf is a certificate with its key.
type Leaf struct {
	Cert, Key []byte // PEM
	TLS       tls.Certificate
}

// Spec describes a certificate. The zero value describes a certificate for 127.0.0.1 that is valid
// for a day.
type Spec struct {
	CommonName string
	DNS        []string
	URIs       []string
	IPs        []string // 127.0.0.1 if DNS, URIs and IPs are empty
	RSA        bool     // instead of ECDSA P-256
	NotAfter   time.Time
}

// New returns a new authority.
func New(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "Weft test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{t: t, cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Pool returns a certificate pool that contains only the authority.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue returns a certificate for servers and clients.
func (a *Authority) Issue(s Spec) Leaf {
	a.t.Helper()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: s.CommonName},
		NotBefore: now.Add(-time.Hour), NotAfter: s.NotAfter, DNSNames: s.DNS,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = now.Add(24 * time.Hour)
	}
	if !template.NotAfter.After(now) {
		template.NotBefore = template.NotAfter.Add(-time.Hour)
	}
	for _, text := range s.URIs {
		u, err := url.Parse(text)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	if len(s.DNS)+len(s.URIs)+len(s.IPs) == 0 {
		s.IPs = []string{"127.0.0.1"}
	}
	for _, text := range s.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(text))
	}
	public, private := a.newKey(s.RSA)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	l := Leaf{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	if l.TLS, err = tls.X509KeyPair(l.Cert, l.Key); err != nil {
		a.t.Fatal(err)
	}
	return l
}

func (a *Authority) newKey(useRSA bool) (public, private any) {
	a.t.Helper()
	if useRSA {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			a.t.Fatal(err)
		}
		return &key.PublicKey, key
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return &key.PublicKey, key
}

// Write writes the authority's certificate to ca.pem in dir and returns the path.
func (a *Authority) Write(dir string) string {
	a.t.Helper()
	return write(a.t, dir, "ca.pem", a.PEM)
}

// Write writes the certificate to NAME.pem and the key to NAME.key in dir and returns the paths.
func (l *Leaf) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	return write(t, dir, name+".pem", l.Cert), write(t, dir, name+".key", l.Key)
}

func write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
