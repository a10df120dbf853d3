// Package credential owns what a handshake of TLS needs: certificates, keys and
// authorities, read from files and read again when those change; the choice among
// several by what a client asks for; and the judgement of what peers show.
//
//	Context  what one tls_context says                       (this file)
//	Server   several of them, chosen by ClientHello          server.go
//	Client   one of them, for the hosts of a cluster         client.go
//	Match    which names in a peer's certificate will do     san.go
//	Store    the files, looked at every second               reloader.go
//	Failure  why a handshake failed, for counters and logs   failure.go
//
// Connections are never touched by a change: they go on with what they began with.
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

// Context is what one tls_context says. It is immutable.
type Context struct {
	// ServerNames are the server names (SNI) that a server's context is for, beside those
	// in its certificate; of a client, the first is the name that it asks for and
	// that the server must prove to have; none: the host's.
	ServerNames []string

	Certificate, Key PEM // ours; a client may have none
	// TrustedCA are those that the peer's certificate is checked with. The zero
	// value is none for a server, and the system's for a client.
	TrustedCA PEM

	// ClientAuth says what a server asks of callers: tls.NoClientCert,
	// tls.VerifyClientCertIfGiven or tls.RequireAndVerifyClientCert.
	ClientAuth tls.ClientAuthType
	// PeerSANs are the subject alternative names of which a peer's certificate must have
	// one; none: any will do. For a client they stand in the place of the server's
	// name, as in Envoy: the chain is verified all the same.
	PeerSANs []SANMatcher
	// SkipVerify makes a client take any certificate, SkipNameVerify any that Authorities have
	// signed.
	SkipVerify, SkipNameVerify bool

	// ALPN is what is offered, best first; a client with none is told per connection.
	ALPN []string
	// ALPNFor is what a client offers in the place of ALPN on connections that are to carry
	// what it is told.
	ALPNFor map[string][]string
	// AllowNoALPN: a server answers who offers nothing of ALPN, without a protocol. Else that is
	// refused (RFC 7301 3.2).
	AllowNoALPN bool

	MinVersion, MaxVersion uint16 // 0: TLS 1.2, and the newest
	Ciphers                []uint16
	Curves                 []tls.CurveID // none: as crypto/tls
}

// PEM is a file, or its content where Path is "". The zero value is none.
type PEM struct {
	Path string
	Text string
}

// IsZero reports whether there is none.
func (p PEM) IsZero() bool { return p == PEM{} }

// Read returns the content.
func (p PEM) Read() ([]byte, error) {
	if p.Path == "" {
		return []byte(p.Text), nil
	}
	return os.ReadFile(p.Path)
}

// material is what the files of a context hold.
type material struct {
	certificate *tls.Certificate // nil: none
	authorities *x509.CertPool   // nil: none
	// What authorities were read from, to see whether they are the same.
	authoritiesPEM []byte
}

// load reads what c refers to.
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

// withoutPath is an error of reading a file without the file's name: that may be the key
// itself, without what makes it PEM.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Check reads what c refers to by read, and returns what keeps a server, or a
// client, from using it; nil: PEM.Read.
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

// checkServer returns what a server lacks.
func (c *Context) checkServer(m material) error {
	switch {
	case m.certificate == nil:
		return errors.New("a server needs cert_chain and private_key")
	case c.ClientAuth != tls.NoClientCert && m.authorities == nil:
		return errors.New("client certificates cannot be verified without ca_cert")
	}
	return nil
}

// checkValidity tells when a certificate of ours has ended, or will only begin.
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

// baseConfig returns what both sides have in common.
func (c *Context) baseConfig(m material) *tls.Config {
	out := &tls.Config{ //nolint:gosec // older versions only if the configuration asks for them
		MinVersion:       max(c.MinVersion, tls.VersionTLS10),
		MaxVersion:       c.MaxVersion,
		CipherSuites:     c.Ciphers,
		CurvePreferences: slices.Clone(c.Curves),
		NextProtos:       slices.Clone(c.ALPN),
		// Records as large as what is written: the answer to a request leaves whole.
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

// files returns the paths that c is read from.
func (c *Context) files() []string {
	var out []string
	for _, p := range []PEM{c.Certificate, c.Key, c.TrustedCA} {
		if p.Path != "" {
			out = append(out, p.Path)
		}
	}
	return out
}
