package variable

import "github.com/weft-proxy/weft/pkg/protocol"

// ofTLS makes a variable of what is known of the caller's TLS.
func ofTLS(value func(*protocol.TLS) string) func(*protocol.Exchange, string) (string, bool) {
	return func(x *protocol.Exchange, _ string) (string, bool) {
		if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil {
			return "", false
		}
		return some(value(x.Meta.Conn.TLS))
	}
}

// ofPeer makes a variable of the caller's certificate.
func ofPeer(value func(*protocol.Certificate) string) func(*protocol.Exchange, string) (string, bool) {
	return ofTLS(func(t *protocol.TLS) string {
		if t.Peer == nil {
			return ""
		}
		return value(t.Peer)
	})
}

func tlsVersion(t *protocol.TLS) string { return t.Version }

func tlsCipher(t *protocol.TLS) string { return t.Cipher }

func serverName(t *protocol.TLS) string { return t.ServerName }

func tlsProtocol(t *protocol.TLS) string { return t.Protocol }

func peerSubject(c *protocol.Certificate) string { return c.Subject }

func peerIssuer(c *protocol.Certificate) string { return c.Issuer }

func peerSerial(c *protocol.Certificate) string { return c.Serial }

func peerFingerprint(c *protocol.Certificate) string { return c.Fingerprint }

func peerURIs(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return peerNames(dst, x, func(c *protocol.Certificate) []string { return c.URIs })
}

func peerDNS(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return peerNames(dst, x, func(c *protocol.Certificate) []string { return c.DNS })
}

// peerNames appends the caller's names, with commas between them.
func peerNames(dst []byte, x *protocol.Exchange, of func(*protocol.Certificate) []string) ([]byte, bool) {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil || x.Meta.Conn.TLS.Peer == nil {
		return dst, false
	}
	names := of(x.Meta.Conn.TLS.Peer)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, name...)
	}
	return dst, len(names) > 0
}
