package network

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"
)

// TLS is what a handshake agreed on. It is immutable.
type TLS struct {
	Version          uint16              // tls.VersionTLS13
	Cipher           uint16              // tls.TLS_AES_128_GCM_SHA256
	ServerName       string              // that the client asked for (SNI); "" for none
	Protocol         string              // chosen by ALPN; "" for none
	Resumed          bool                // an earlier session was continued
	PeerCertificate  *x509.Certificate   // that the peer showed; nil for none
	Chain            []*x509.Certificate // all that it sent: Peer, and those that lead to its authority
	Verified         bool                // Peer is of an authority that is trusted
	LocalCertificate *x509.Certificate   // that we showed, as a server, if who configured that told (Shows); as a client, that we show who asks
}

// TLS returns what the connection's handshake agreed on; nil: there was none.
func (c *Conn) TLS() *TLS {
	if s := c.secure.Load(); s != nil {
		return &s.info
	}
	return nil
}

// ServerHandshake makes the connection one over TLS, of which we are the server: once it
// has returned nil, all of c's methods mean plaintext. What was unread belongs to the
// handshake. It takes until the deadline at most (os.ErrDeadlineExceeded), which is
// not zero; then, or with another error, the peer was told why and the connection is
// good for nothing but Close. Reading and writing goroutine; not twice.
func (c *Conn) ServerHandshake(config *tls.Config, deadline time.Time) error {
	s := c.beginTLS()
	s.tls = tls.Server((*tlsTransport)(s), config)
	return s.handshake(deadline)
}

// ClientHandshake is ServerHandshake for the other side. Close, from any goroutine, ends
// it early. A config that has a VerifyConnection verifies by that, or also by that.
func (c *Conn) ClientHandshake(config *tls.Config, deadline time.Time) error {
	s := c.beginTLS()
	s.tls = tls.Client((*tlsTransport)(s), config)
	if len(config.Certificates) > 0 {
		s.info.LocalCertificate = config.Certificates[0].Leaf
	}
	s.info.Verified = config.VerifyConnection != nil
	return s.handshake(deadline)
}

// SetLocalCertificate tells which certificate we show: for tls.Config.GetConfigForClient, whose
// hello.Conn it is a method of.
func (w *tlsTransport) SetLocalCertificate(own *x509.Certificate) { w.info.LocalCertificate = own }

// beginTLS returns what is to become c's TLS.
func (c *Conn) beginTLS() *tlsLayer {
	s := &tlsLayer{conn: c}
	s.in.early, c.reader.unread = c.reader.unread, nil
	c.shrink() // what follows reads otherwise
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
		s.tryFlush() // the alert
		s.drop()
		if e := s.in.early; e != nil {
			s.in.early = nil
			e.Release()
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			err = os.ErrDeadlineExceeded // it may be hidden in what tls.Conn makes of it
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
