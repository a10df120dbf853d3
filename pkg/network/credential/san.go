package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// SANType is a type of subject alternative name (RFC 5280 4.2.1.6).
type SANType uint8

// Types of subject alternative names.
const (
	DNS SANType = iota
	URI         // for example a SPIFFE ID, spiffe://trust-domain/path
	IP
	Email
)

// NameMatcher is a condition on a name. Several handshakes may call MatchValue concurrently.
type NameMatcher interface {
	MatchValue(name string) bool
}

// SANMatcher matches subject alternative names of one type.
type SANMatcher struct {
	Type SANType
	// DNSName is compared with DNS names as a TLS client does it: one-label wildcards in the
	// certificate, case-insensitive (RFC 6125 6.4). "" means that Name decides. Only for type DNS.
	DNSName string
	Name    NameMatcher
}

// matchesCertificate reports whether a name of type m.Type in cert matches.
func (m *SANMatcher) matchesCertificate(cert *x509.Certificate) bool {
	switch m.Type {
	case DNS:
		if m.DNSName != "" {
			names := x509.Certificate{DNSNames: cert.DNSNames}
			return names.VerifyHostname(m.DNSName) == nil
		}
		return slices.ContainsFunc(cert.DNSNames, m.Name.MatchValue)
	case URI:
		return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return m.Name.MatchValue(u.String()) })
	case IP:
		return slices.ContainsFunc(cert.IPAddresses, func(ip net.IP) bool { return m.Name.MatchValue(ip.String()) })
	case Email:
		return slices.ContainsFunc(cert.EmailAddresses, m.Name.MatchValue)
	}
	return false
}

// errSANMismatch means that the peer's certificate is trusted but has none of the expected names.
var errSANMismatch = errors.New("none of the names in the peer's certificate is among match_typed_subject_alt_names")

// verifySAN returns an error if no name in the peer's certificate matches one of peers. It returns
// nil if the peer sent no certificate: ClientAuth decides whether that is allowed.
func verifySAN(peers []SANMatcher, state *tls.ConnectionState) error {
	if len(peers) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	leaf := state.PeerCertificates[0]
	for i := range peers {
		if peers[i].matchesCertificate(leaf) {
			return nil
		}
	}
	return fmt.Errorf("%w: its subject is %q, its DNS names are %v, its URIs are %v", errSANMismatch, leaf.Subject, leaf.DNSNames, leaf.URIs)
}
