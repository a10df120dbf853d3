package stream

import (
	"crypto/tls"
	"fmt"
	"regexp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// NewTLSContext returns the credential.Context of t. The context offers alpn if t has no ALPN list
// of its own. NewTLSContext fails only if t was not validated. It reads no files.
func NewTLSContext(t *config.TLS, alpn []string) (*credential.Context, error) {
	c := &credential.Context{
		Certificate: credential.PEM(t.Certificate), Key: credential.PEM(t.Key), TrustedCA: credential.PEM(t.TrustedCA),
		SkipVerify: t.InsecureSkipVerify, SkipNameVerify: t.SkipHostnameCheck, ALPN: t.ALPN, ALPNFor: t.ALPNFor, AllowALPNMismatch: t.AllowALPNMismatch,
		SNI: credential.SNIMode(t.SNI), VerifySNI: t.VerifySNI, NoSessionResumption: t.NoSessionResumption,
		CertificateHashes: t.CertificateHashes, PublicKeyHashes: t.PublicKeyHashes,
		MinVersion: tlsVersionID(t.MinVersion), MaxVersion: tlsVersionID(t.MaxVersion),
	}
	if t.ServerName != "" {
		c.ServerNames = []string{t.ServerName}
	}
	if len(c.ALPN) == 0 {
		c.ALPN = alpn
	}
	switch t.ClientAuth {
	case config.VerifyClientCertIfGiven:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case config.RequireAndVerifyClientCert:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	case config.NoClientCert:
	}
	for _, name := range t.CipherSuites {
		id, _, ok := credential.Cipher(name)
		if !ok {
			return nil, fmt.Errorf("cipher_suites: %q is not known", name)
		}
		c.Ciphers = append(c.Ciphers, id)
	}
	for _, name := range t.Curves {
		id, ok := credential.Curve(name)
		if !ok {
			return nil, fmt.Errorf("ecdh_curves: %q is not known", name)
		}
		c.Curves = append(c.Curves, id)
	}
	for i := range t.MatchSANs {
		m, err := newSANMatcher(&t.MatchSANs[i])
		if err != nil {
			return nil, fmt.Errorf("match_typed_subject_alt_names: %w", err)
		}
		c.PeerSANs = append(c.PeerSANs, m)
	}
	return c, nil
}

func newSANMatcher(p *config.SANMatcher) (credential.SANMatcher, error) {
	m := credential.SANMatcher{Type: sanTypeOf(p.Type)}
	if m.Type == credential.DNS && p.Name.Kind == config.ValueExact {
		m.DNSName = p.Name.Text
		return m, nil
	}
	var expression *regexp.Regexp
	if p.Name.Kind == config.ValueRegex {
		var err error
		if expression, err = regexp.Compile(`\A(?:` + p.Name.Text + `)\z`); err != nil { // a dot matches no newline, as in Envoy
			return m, err
		}
	}
	name := headermatch.New(p.Name, expression)
	m.Name = &name
	return m, nil
}

func sanTypeOf(k config.SANType) credential.SANType {
	switch k {
	case config.SANTypeURI:
		return credential.URI
	case config.SANTypeIP:
		return credential.IP
	case config.SANTypeEmail:
		return credential.Email
	case config.SANTypeDNS:
	}
	return credential.DNS
}

func tlsVersionID(v config.TLSVersion) uint16 {
	switch v {
	case config.TLS10:
		return tls.VersionTLS10
	case config.TLS11:
		return tls.VersionTLS11
	case config.TLS12:
		return tls.VersionTLS12
	case config.TLS13:
		return tls.VersionTLS13
	}
	return 0
}

// ALPN returns the ALPN name of a protocol (RFC 7301 6), or "" if it has none.
func ALPN(p config.Protocol) string {
	switch p {
	case config.HTTP1:
		return "http/1.1"
	case config.HTTP2:
		return "h2"
	case config.Auto, config.HTTPByALPN, config.Bolt, config.BoltV2, config.Dubbo, config.DubboThrift, config.Tars:
	}
	return ""
}
