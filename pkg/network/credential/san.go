package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
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

// SANMatcher matches subject alternative names. Exactly one of Exact, Prefix, Suffix, Contains and
// Regex is set. Regex must match the complete name.
type SANMatcher struct {
	Kind                            SANType
	Exact, Prefix, Suffix, Contains string
	Regex                           *regexp.Regexp
	IgnoreCase                      bool // has no effect on Regex
}

// CompileRegex compiles the regular expression (RE2) of a SANMatcher.
func CompileRegex(text string) (*regexp.Regexp, error) { return regexp.Compile(`\A(?:` + text + `)\z`) }

// matches reports whether name matches. It repeats string conditions of headermatch.Matcher, which
// is in a higher layer.
func (m *SANMatcher) matches(name string) bool {
	if m.Regex != nil {
		return m.Regex.MatchString(name)
	}
	exact, prefix, suffix, part := m.Exact, m.Prefix, m.Suffix, m.Contains
	if m.IgnoreCase {
		name, exact, prefix = strings.ToLower(name), strings.ToLower(exact), strings.ToLower(prefix)
		suffix, part = strings.ToLower(suffix), strings.ToLower(part)
	}
	switch {
	case exact != "":
		return name == exact
	case prefix != "":
		return strings.HasPrefix(name, prefix)
	case suffix != "":
		return strings.HasSuffix(name, suffix)
	}
	return part != "" && strings.Contains(name, part)
}

// matchesCertificate reports whether a name of type m.Kind in cert matches.
func (m *SANMatcher) matchesCertificate(cert *x509.Certificate) bool {
	switch m.Kind {
	case DNS:
		if m.Exact != "" { // matches like a TLS client: one-label wildcards, case-insensitive (RFC 6125 6.4)
			names := x509.Certificate{DNSNames: cert.DNSNames}
			return names.VerifyHostname(m.Exact) == nil
		}
		return slices.ContainsFunc(cert.DNSNames, m.matches)
	case URI:
		return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return m.matches(u.String()) })
	case IP:
		return slices.ContainsFunc(cert.IPAddresses, func(ip net.IP) bool { return m.matches(ip.String()) })
	case Email:
		return slices.ContainsFunc(cert.EmailAddresses, m.matches)
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
