package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// HandshakeFailure is the reason why a handshake failed. The names are label values of a metric.
type HandshakeFailure uint8

// The handshake failures. Their order may change, their names may not.
const (
	OtherFailure  HandshakeFailure = iota // none of the failures below
	Timeout                               // the handshake timed out
	PeerClosed                            // the peer closed or reset the connection
	NotTLS                                // the peer does not speak TLS
	NoVersion                             // no common TLS version
	NoCipher                              // no common cipher suite or group
	NoProtocol                            // ALPN: no common protocol
	NoCertificate                         // the peer did not send a required certificate
	Untrusted                             // the peer's certificate is invalid or its CA is not trusted
	SANMismatch                           // the peer's certificate has none of the expected names
	Expired                               // the peer's certificate has expired or is not yet valid
	PeerAlert                             // the peer sent an alert, often because it rejects the local certificate

	failureCount
)

//nolint:gochecknoglobals // a constant table
var failures = [failureCount]struct{ name, text string }{
	OtherFailure:  {"other", "the handshake failed"},
	Timeout:       {"timeout", "the handshake timed out"},
	PeerClosed:    {"peer_closed", "the peer closed the connection during the handshake"},
	NotTLS:        {"not_tls", "the peer does not speak TLS"},
	NoVersion:     {"version", "the peer supports none of the allowed TLS versions"},
	NoCipher:      {"cipher", "the peer supports none of the allowed cipher suites"},
	NoProtocol:    {"alpn", "the peer offers no supported protocol (ALPN)"},
	NoCertificate: {"no_certificate", "the peer sent no certificate"},
	Untrusted:     {"untrusted", "the peer's certificate is not trusted"},
	SANMismatch:   {"wrong_peer", "the peer's certificate has none of the expected names"},
	Expired:       {"expired", "the peer's certificate is expired or not yet valid"},
	PeerAlert:     {"refused", "the peer rejected the handshake"},
}

func (f HandshakeFailure) String() string { return failures[f].name }

// Text explains f to an operator.
func (f HandshakeFailure) Text() string { return failures[f].text }

// HandshakeFailureOf returns the failure for err, the error of a handshake. err must not be nil.
func HandshakeFailureOf(err error) HandshakeFailure {
	if f, ok := certificateFailure(err); ok {
		return f
	}
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	case errors.As(err, &record):
		return NotTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return PeerClosed
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return PeerAlert
	}
	// crypto/tls has no types for the remaining errors.
	for _, pattern := range [...]struct {
		text    string
		failure HandshakeFailure
	}{
		{"unsupported version", NoVersion}, {"protocol version", NoVersion},
		{"no cipher suite", NoCipher}, {"no key exchanges", NoCipher},
		{"unsupported application protocols", NoProtocol}, {"ALPN", NoProtocol},
		{"didn't provide a certificate", NoCertificate}, {"first record does not look like", NotTLS},
	} {
		if strings.Contains(err.Error(), pattern.text) {
			return pattern.failure
		}
	}
	return OtherFailure
}

// certificateFailure returns the failure for an error about the peer's certificate, and false for
// other errors.
func certificateFailure(err error) (HandshakeFailure, bool) {
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errSANMismatch), errors.As(err, &hostname):
		return SANMismatch, true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Expired, true
	case errors.As(err, &verification), errors.Is(err, errPinMismatch), strings.Contains(err.Error(), "failed to verify certificate"):
		return Untrusted, true
	}
	return OtherFailure, false
}
