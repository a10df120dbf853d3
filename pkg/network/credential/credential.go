// Package credential provides the TLS configurations of handshakes. It reads certificates, keys and
// trusted CAs from files and reloads them when they change, selects a context by the ClientHello,
// and verifies the names in peer certificates.
package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Context is the configuration of one tls_context. It is immutable.
type Context struct {
	// ServerNames: a server uses the context for these names (SNI), in addition to those in its
	// certificate. A client sends the first one as SNI and verifies it. If ServerNames is empty, a
	// client uses the name of the host.
	ServerNames []string
	// SNI selects the name that a client sends instead. VerifySNI makes a client verify that the
	// certificate of the server is valid for the name that it sends.
	SNI       SNIMode
	VerifySNI bool

	Certificate, Key PEM // local certificate; optional for a client
	// TrustedCA has the CA certificates that verify peer certificates. If it is the zero value, a
	// client uses the CAs of the system, and a server cannot verify certificates.
	TrustedCA PEM

	// ClientAuth says whether a server requests client certificates: tls.NoClientCert,
	// tls.VerifyClientCertIfGiven or tls.RequireAndVerifyClientCert.
	ClientAuth tls.ClientAuthType
	// PeerSANs: one of them must match a subject alternative name of the peer certificate; empty: a
	// server accepts any name. For a client they replace the verification of the server name, as in
	// Envoy, but not the verification of the chain.
	PeerSANs []SANMatcher
	// SkipVerify makes a client accept any certificate. SkipNameVerify makes it skip the
	// verification of the server name; the chain and PeerSANs are still verified.
	SkipVerify, SkipNameVerify bool
	// CertificateHashes and PublicKeyHashes are SHA-256 digests of certificates and of their
	// SubjectPublicKeyInfo. The peer certificate must match one of them; both empty: any.
	CertificateHashes, PublicKeyHashes [][32]byte
	// NoSessionResumption makes each handshake of a client a full one.
	NoSessionResumption bool

	// ALPN lists the protocols to offer, in order of preference. If it is empty, the caller of
	// Client.Config sets the protocols of each connection.
	ALPN []string
	// ALPNFor replaces ALPN for connections of a client. Its key is the first protocol that the
	// caller passes to Client.Config.
	ALPNFor map[string][]string
	// AllowALPNMismatch: a server accepts clients whose ALPN list has none of the protocols in ALPN,
	// and selects no protocol. If false, their handshakes fail (RFC 7301 3.2).
	AllowALPNMismatch bool

	MinVersion, MaxVersion uint16 // 0: TLS 1.2 and the latest version
	// Ciphers are the cipher suites for TLS 1.2 and older; empty: SafeCiphers, or the defaults of
	// crypto/tls if MinVersion is older than TLS 1.2.
	Ciphers []uint16
	Curves  []tls.CurveID // empty: the defaults of crypto/tls
}

// SNIMode says which name a client sends as SNI.
type SNIMode uint8

// The modes. Addresses are never sent.
const (
	SNIDefault    SNIMode = iota // the first of ServerNames, or the name of the host if there is none
	SNIServerName                // the first of ServerNames, or none
	SNIHostname                  // the name of the host, or the first of ServerNames if the host has none
)

// PEM is a PEM file, or its content if Path is empty. The zero value means that there is none.
type PEM struct {
	Path string
	Text string
}

// IsZero reports whether p is the zero value.
func (p PEM) IsZero() bool { return p == PEM{} }

// Read returns the PEM content.
func (p PEM) Read() ([]byte, error) {
	if p.Path == "" {
		return []byte(p.Text), nil
	}
	return os.ReadFile(p.Path)
}

// material holds the loaded files of a context.
type material struct {
	certificate *tls.Certificate // nil: none
	authorities *x509.CertPool   // nil: none
	// authoritiesPEM is the PEM text of authorities. reload compares it to detect a change.
	authoritiesPEM []byte
}

// load reads the files of c.
func (c *Context) load(read func(PEM) ([]byte, error)) (m material, err error) {
	if !c.Certificate.IsZero() || !c.Key.IsZero() {
		cert, err := read(c.Certificate)
		if err != nil {
			return m, fmt.Errorf("cert_chain: %w", err)
		}
		key, err := read(c.Key)
		if err != nil {
			return m, fmt.Errorf("private_key: %w", withoutPath(err))
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return m, fmt.Errorf("cert_chain and private_key: %w", err)
		}
		m.certificate = &pair
	}
	if c.TrustedCA.IsZero() {
		return m, nil
	}
	if m.authoritiesPEM, err = read(c.TrustedCA); err != nil {
		return m, fmt.Errorf("ca_cert: %w", err)
	}
	m.authorities = x509.NewCertPool()
	if !m.authorities.AppendCertsFromPEM(m.authoritiesPEM) {
		return m, errors.New("ca_cert: it contains no certificate")
	}
	return m, nil
}

// withoutPath returns err without the path of a file. If the configuration contains a key without
// its PEM header, Weft interprets the key as a path, and the path in the error would disclose the
// key.
func withoutPath(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// Check reads the files of c with read and returns an error if they cannot be used: by a server if
// server is true, else by a client. A nil read means PEM.Read.
func (c *Context) Check(server bool, read func(PEM) ([]byte, error)) error {
	if read == nil {
		read = PEM.Read
	}
	m, err := c.load(read)
	if err != nil {
		return err
	}
	if server {
		return c.checkServer(m)
	}
	return nil
}

// checkServer returns an error if a server cannot use m.
func (c *Context) checkServer(m material) error {
	switch {
	case m.certificate == nil:
		return errors.New("a server needs cert_chain and private_key")
	case c.ClientAuth != tls.NoClientCert && m.authorities == nil:
		return errors.New("client certificates cannot be verified without ca_cert")
	}
	return nil
}

// checkValidity returns an error if the local certificate has expired or is not yet valid.
func (m *material) checkValidity(now time.Time) error {
	if m.certificate == nil || m.certificate.Leaf == nil {
		return nil
	}
	leaf := m.certificate.Leaf
	if now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return fmt.Errorf("the certificate %q is valid only from %s to %s", leaf.Subject,
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// baseConfig returns the configuration that servers and clients share.
func (c *Context) baseConfig(m material) *tls.Config {
	out := &tls.Config{ //nolint:gosec // older versions only if the configuration allows them
		MinVersion:       max(c.MinVersion, tls.VersionTLS10),
		MaxVersion:       c.MaxVersion,
		CipherSuites:     c.Ciphers,
		CurvePreferences: slices.Clone(c.Curves),
		NextProtos:       slices.Clone(c.ALPN),
		// crypto/tls would otherwise split the first responses of a connection into small records.
		DynamicRecordSizingDisabled: true,
	}
	if c.MinVersion == 0 {
		out.MinVersion = tls.VersionTLS12
	}
	if len(c.Ciphers) == 0 && out.MinVersion >= tls.VersionTLS12 {
		out.CipherSuites = SafeCiphers()
	}
	if m.certificate != nil {
		out.Certificates = []tls.Certificate{*m.certificate}
	}
	return out
}

// files returns the paths of the files of c.
func (c *Context) files() []string {
	var out []string
	for _, p := range []PEM{c.Certificate, c.Key, c.TrustedCA} {
		if p.Path != "" {
			out = append(out, p.Path)
		}
	}
	return out
}
