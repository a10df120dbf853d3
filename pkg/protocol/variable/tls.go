package variable

import (
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// tlsSide returns the TLS session of one side of an exchange, or nil for plaintext.
type tlsSide func(*protocol.Exchange) *protocol.TLS

func downstreamTLS(x *protocol.Exchange) *protocol.TLS {
	if x.Meta.Conn == nil {
		return nil
	}
	return x.Meta.Conn.TLS
}

// upstreamTLS returns the TLS session of the last attempt's connection.
func upstreamTLS(x *protocol.Exchange) *protocol.TLS {
	if n := len(x.Record.Attempts); n > 0 {
		return x.Record.Attempts[n-1].TLS
	}
	return nil
}

// stateVar returns the text function of a variable for a property of the side's TLS.
func (side tlsSide) stateVar(value func(*protocol.TLS) string) func(*protocol.Exchange, string) (string, bool) {
	return func(x *protocol.Exchange, _ string) (string, bool) {
		t := side(x)
		if t == nil {
			return "", false
		}
		return nonEmpty(value(t))
	}
}

// certificateVar returns the text function of a variable for a property of the side's peer
// certificate.
func (side tlsSide) certificateVar(value func(*protocol.Certificate) string) func(*protocol.Exchange, string) (string, bool) {
	return side.stateVar(func(t *protocol.TLS) string {
		if t.Peer == nil {
			return ""
		}
		return value(t.Peer)
	})
}

// sanVar returns the write function of a variable for names in the side's peer certificate,
// separated by commas.
func (side tlsSide) sanVar(sans func(*protocol.Certificate) []string) func([]byte, *protocol.Exchange) ([]byte, bool) {
	return func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		t := side(x)
		if t == nil || t.Peer == nil {
			return dst, false
		}
		names := sans(t.Peer)
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, name...)
		}
		return dst, len(names) > 0
	}
}

func tlsResumed(t *protocol.TLS) string { return strconv.FormatBool(t.Resumed) }

func tlsVersion(t *protocol.TLS) string { return t.Version }

func tlsCipher(t *protocol.TLS) string { return t.Cipher }

func serverName(t *protocol.TLS) string { return t.ServerName }

func tlsProtocol(t *protocol.TLS) string { return t.Protocol }

func peerSubject(c *protocol.Certificate) string { return c.Subject }

func peerIssuer(c *protocol.Certificate) string { return c.Issuer }

func peerSerial(c *protocol.Certificate) string { return c.Serial }

func peerFingerprint(c *protocol.Certificate) string { return c.Fingerprint }

func peerURIs(c *protocol.Certificate) []string { return c.URISANs }

func peerDNS(c *protocol.Certificate) []string { return c.DNSSANs }
