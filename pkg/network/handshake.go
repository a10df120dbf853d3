package network

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"
)

// TLS is the result of a handshake. It is immutable.
type TLS struct {
	Version          uint16              // for example tls.VersionTLS13
	Cipher           uint16              // for example tls.TLS_AES_128_GCM_SHA256
	ServerName       string              // requested by the client (SNI); "" for none
	Protocol         string              // chosen by ALPN; "" for none
	Resumed          bool                // an earlier session was resumed
	PeerCertificate  *x509.Certificate   // sent by the peer; nil for none
	Chain            []*x509.Certificate // sent by the peer: PeerCertificate and its intermediates
	Verified         bool                // PeerCertificate was verified
	LocalCertificate *x509.Certificate   // server: set by SetLocalCertificate; client: the first of the configuration
}

// TLS returns the result of the connection's handshake; nil: there was none.
func (c *Conn) TLS() *TLS {
	if s := c.secure.Load(); s != nil {
		return &s.info
	}
	return nil
}

// ServerHandshake starts TLS on the connection as the server: once it has returned nil, the methods
// of c read and write plaintext. The handshake consumes the unread bytes. At the deadline it fails
// with os.ErrDeadlineExceeded. If the handshake fails, ServerHandshake tries to send the TLS alert,
// and the caller must close the connection. The goroutine that reads and writes calls it once.
func (c *Conn) ServerHandshake(config *tls.Config, deadline time.Time) error {
	s := newTLSLayer(c)
	s.tls = tls.Server((*tlsTransport)(s), config)
	return s.handshake(deadline)
}

// ClientHandshake is ServerHandshake for the client side. Any goroutine can end the handshake early
// with Close. If config has a VerifyConnection, TLS.Verified is true: that function, or crypto/tls,
// must verify the certificate chain.
func (c *Conn) ClientHandshake(config *tls.Config, deadline time.Time) error {
	s := newTLSLayer(c)
	s.tls = tls.Client((*tlsTransport)(s), config)
	if len(config.Certificates) > 0 {
		s.info.LocalCertificate = config.Certificates[0].Leaf
	}
	s.info.Verified = config.VerifyConnection != nil
	return s.handshake(deadline)
}

// SetLocalCertificate sets TLS.LocalCertificate. The GetConfigForClient function of the server's
// tls.Config calls it on hello.Conn.
func (t *tlsTransport) SetLocalCertificate(cert *x509.Certificate) { t.info.LocalCertificate = cert }

// newTLSLayer returns a TLS layer for c. The layer takes over the unread bytes of c.
func newTLSLayer(c *Conn) *tlsLayer {
	s := &tlsLayer{conn: c}
	s.in.unread = c.reader.unread.take()
	c.shrink() // the next read creates a read state with TLS
	return s
}

func (s *tlsLayer) handshake(deadline time.Time) error {
	c := s.conn
	c.SetReadDeadline(deadline)
	c.SetWriteDeadline(deadline)
	err := s.tls.Handshake() //nolint:noctx // its deadline is the connection's
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		s.tryFlush() // sends the alert
		s.dropSealed()
		if unread := s.in.unread; unread != nil {
			s.in.unread = nil
			unread.Release()
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			err = os.ErrDeadlineExceeded // tls.Conn may have hidden it in its own error
		}
		return err
	}
	c.SetReadDeadline(time.Time{})
	c.SetWriteDeadline(time.Time{})
	state, verified := s.tls.ConnectionState(), s.info.Verified
	s.info = TLS{
		Version: state.Version, Cipher: state.CipherSuite,
		ServerName: state.ServerName, Protocol: state.NegotiatedProtocol, Resumed: state.DidResume,
		LocalCertificate: s.info.LocalCertificate,
	}
	if len(state.PeerCertificates) > 0 {
		s.info.PeerCertificate, s.info.Chain = state.PeerCertificates[0], state.PeerCertificates
		s.info.Verified = verified || len(state.VerifiedChains) > 0
	}
	c.secure.Store(s)
	return nil
}
