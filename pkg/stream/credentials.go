package stream

import (
	"crypto/tls"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
)

// NewTLSContext returns t in the form that handshakes use. alpn is offered if t has no list of its
// own. NewTLSContext fails only if t was not validated. It reads no files.
func NewTLSContext(t *config.TLS, alpn []string) (*credential.Context, error) {
	c := &credential.Context{
		Certificate: credential.PEM(t.Certificate), Key: credential.PEM(t.Key), TrustedCA: credential.PEM(t.Authorities),
		SkipVerify: t.SkipVerify, SkipNameVerify: t.AnyName, ALPN: t.ALPN, ALPNFor: t.ALPNFor, AllowNoALPN: t.AnyALPN,
		MinVersion: version(t.MinVersion), MaxVersion: version(t.MaxVersion),
	}
	if t.ServerName != "" {
		c.ServerNames = []string{t.ServerName}
	}
	if len(c.ALPN) == 0 {
		c.ALPN = alpn
	}
	switch t.ClientCertificate {
	case config.VerifyClientCertificate:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case config.RequireClientCertificate:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	case config.NoClientCertificate:
	}
	for _, name := range t.Ciphers {
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
	for i := range t.Peers {
		m, err := match(&t.Peers[i])
		if err != nil {
			return nil, fmt.Errorf("match_typed_subject_alt_names: %w", err)
		}
		c.PeerSANs = append(c.PeerSANs, m)
	}
	return c, nil
}

func match(p *config.PeerName) (credential.SANMatcher, error) {
	m := credential.SANMatcher{
		Kind: kind(p.Kind), Exact: p.Exact, Prefix: p.Prefix, Suffix: p.Suffix, Contains: p.Contains, IgnoreCase: p.IgnoreCase,
	}
	if p.Regex == "" {
		return m, nil
	}
	var err error
	m.Regex, err = credential.CompileRegex(p.Regex)
	return m, err
}

func kind(k config.NameKind) credential.SANType {
	switch k {
	case config.NameURI:
		return credential.URI
	case config.NameIP:
		return credential.IP
	case config.NameEmail:
		return credential.Email
	case config.NameDNS:
	}
	return credential.DNS
}

func version(v config.TLSVersion) uint16 {
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
	case config.Auto, config.Bolt, config.BoltV2, config.Dubbo, config.DubboThrift, config.Tars:
	}
	return ""
}
