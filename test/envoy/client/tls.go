package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/certs"
)

// TLS says how a client begins a TLS session. It verifies no certificate: what the server sends is
// compared instead.
type TLS struct {
	Dir         string // of the certificates
	ServerName  string // "": none
	ALPN        []string
	Certificate string // a name of package certs; "": none
	MaxVersion  uint16 // 0: TLS 1.3
}

// handshake begins a TLS session. The text describes the session, or why there is none.
func (t *TLS) handshake(conn net.Conn, deadline time.Time) (session *tls.Conn, text string) {
	config := &tls.Config{
		ServerName: t.ServerName, NextProtos: t.ALPN, MinVersion: tls.VersionTLS10, MaxVersion: t.MaxVersion,
		InsecureSkipVerify: true, //nolint:gosec // the certificate is compared
	}
	if t.Certificate != "" {
		certificate, err := certs.Load(t.Dir, t.Certificate)
		if err != nil {
			return nil, err.Error()
		}
		// The client sends its certificate even if the server asks for another issuer.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	session = tls.Client(conn, config)
	if err := session.HandshakeContext(ctx); err != nil {
		return nil, "no session: " + alertOf(err)
	}
	state := session.ConnectionState()
	return session, fmt.Sprintf("%s, ALPN %q, certificate %s", tls.VersionName(state.Version), state.NegotiatedProtocol, state.PeerCertificates[0].Subject.CommonName)
}

// alertOf returns the alert that the server sent, or a text for the end of the connection.
func alertOf(err error) string {
	if text := alertText(err); text != "" {
		return text
	}
	return "the connection ended"
}

// alertText returns the alert that ended a TLS session, or "".
func alertText(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "remote error" {
		return "alert: " + strings.TrimPrefix(operation.Err.Error(), "tls: ")
	}
	return ""
}
