package stream

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"strings"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// NewTLSMeta returns the TLS metadata of a connection, or nil for plaintext.
func NewTLSMeta(conn *network.Conn) *protocol.TLS {
	t := conn.TLS()
	if t == nil {
		return nil
	}
	m := &protocol.TLS{
		Version: strings.Replace(tls.VersionName(t.Version), "TLS ", "TLSv", 1), Cipher: tls.CipherSuiteName(t.Cipher),
		ServerName: t.ServerName, Protocol: t.Protocol, Resumed: t.Resumed,
	}
	if t.LocalCertificate != nil {
		m.LocalURISANs = urisOf(t.LocalCertificate)
	}
	if t.PeerCertificate != nil && t.Verified {
		m.Peer = newCertificate(t.PeerCertificate)
		for _, cert := range t.Chain {
			m.Peer.Raw = append(m.Peer.Raw, cert.Raw)
		}
	}
	return m
}

func newCertificate(cert *x509.Certificate) *protocol.Certificate {
	sum := sha256.Sum256(cert.Raw)
	c := &protocol.Certificate{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Serial: cert.SerialNumber.Text(16),
		Fingerprint: hex.EncodeToString(sum[:]), DNSSANs: cert.DNSNames, URISANs: urisOf(cert),
	}
	return c
}

func urisOf(cert *x509.Certificate) (uris []string) {
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	return uris
}
