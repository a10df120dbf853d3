package variable

import (
	"crypto/sha1" //nolint:gosec // a fingerprint that Envoy defines, no protection
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// tlsOperators returns the operators for TLS. Those for the peer's certificate have values only if
// it was verified.
func tlsOperators() []operator {
	downstream, upstream := tlsSide(downstreamTLS), tlsSide(upstreamTLS)
	return []operator{
		{name: "DOWNSTREAM_TLS_VERSION", compile: sameAs("downstream_tls_version"), doc: "TLS version of the downstream connection: TLSv1.3."},
		{name: "DOWNSTREAM_TLS_CIPHER", compile: downstream.cipherOperator, doc: "Cipher suite of the downstream connection, by its OpenSSL name."},
		{name: "DOWNSTREAM_PEER_SUBJECT", compile: sameAs("downstream_peer_subject"), doc: "Subject of the client certificate."},
		{name: "DOWNSTREAM_PEER_ISSUER", compile: sameAs("downstream_peer_issuer"), doc: "Issuer of the client certificate."},
		{name: "DOWNSTREAM_PEER_SERIAL", compile: downstream.peerText(serialNumber), doc: "Serial number of the client certificate, hexadecimal."},
		{name: "DOWNSTREAM_PEER_FINGERPRINT_256", compile: sameAs("downstream_peer_fingerprint_256"), doc: "SHA-256 of the client certificate, hexadecimal."},
		{name: "DOWNSTREAM_PEER_FINGERPRINT_1", compile: downstream.peerText(sha1Fingerprint), doc: "SHA-1 of the client certificate, hexadecimal."},
		{name: "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256", compile: downstream.peerList(chainSHA256), doc: "SHA-256 of the certificates that the client sent."},
		{name: "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1", compile: downstream.peerList(chainSHA1), doc: "SHA-1 of the certificates that the client sent."},
		{name: "DOWNSTREAM_PEER_CHAIN_SERIALS", compile: downstream.peerList(chainSerials), doc: "Serial numbers of the certificates that the client sent."},
		{name: "DOWNSTREAM_PEER_URI_SAN", compile: sameAs("downstream_peer_uri_san"), doc: "URI names in the client certificate."},
		{name: "DOWNSTREAM_PEER_DNS_SAN", compile: sameAs("downstream_peer_dns_san"), doc: "DNS names in the client certificate."},
		{name: "DOWNSTREAM_PEER_IP_SAN", compile: downstream.peerList(ipNames), doc: "IP addresses in the client certificate."},
		{name: "DOWNSTREAM_PEER_EMAIL_SAN", compile: downstream.peerList(emailNames), doc: "E-mail addresses in the client certificate."},
		{name: "DOWNSTREAM_PEER_CERT", compile: downstream.peerText(escapedCertificate), doc: "Client certificate as PEM, percent-encoded."},
		{name: "DOWNSTREAM_PEER_CERT_V_START", argument: optionalArgument, compile: timeValue(downstream.peerTime(validFrom), time.UTC), doc: "Start of the validity of the client certificate."},
		{name: "DOWNSTREAM_PEER_CERT_V_END", argument: optionalArgument, compile: timeValue(downstream.peerTime(validTo), time.UTC), doc: "End of the validity of the client certificate."},
		{name: "DOWNSTREAM_LOCAL_URI_SAN", compile: listValue(downstream.localURIs), doc: "URI names in Weft's certificate for clients."},
		{name: "UPSTREAM_TLS_VERSION", compile: sameAs("upstream_tls_version"), doc: "TLS version of the last attempt's connection."},
		{name: "UPSTREAM_TLS_CIPHER", compile: upstream.cipherOperator, doc: "Cipher suite of the last attempt's connection, by its OpenSSL name."},
		{name: "UPSTREAM_SERVER_NAME", compile: textValue(func(x *protocol.Exchange) (string, bool) { return upstream.stateVar(serverName)(x, "") }), doc: "Server name that Weft sent to the host (SNI)."},
		{name: "UPSTREAM_PEER_SUBJECT", compile: sameAs("upstream_peer_subject"), doc: "Subject of the host's certificate."},
		{name: "UPSTREAM_PEER_ISSUER", compile: sameAs("upstream_peer_issuer"), doc: "Issuer of the host's certificate."},
		{name: "UPSTREAM_PEER_URI_SAN", compile: sameAs("upstream_peer_uri_san"), doc: "URI names in the host's certificate."},
		{name: "UPSTREAM_PEER_DNS_SAN", compile: sameAs("upstream_peer_dns_san"), doc: "DNS names in the host's certificate."},
		{name: "UPSTREAM_PEER_IP_SAN", compile: upstream.peerList(ipNames), doc: "IP addresses in the host's certificate."},
		{name: "UPSTREAM_PEER_CERT", compile: upstream.peerText(escapedCertificate), doc: "The host's certificate as PEM, percent-encoded."},
		{name: "UPSTREAM_PEER_CERT_V_START", argument: optionalArgument, compile: timeValue(upstream.peerTime(validFrom), time.UTC), doc: "Start of the validity of the host's certificate."},
		{name: "UPSTREAM_PEER_CERT_V_END", argument: optionalArgument, compile: timeValue(upstream.peerTime(validTo), time.UTC), doc: "End of the validity of the host's certificate."},
		{name: "UPSTREAM_LOCAL_URI_SAN", compile: listValue(upstream.localURIs), doc: "URI names in Weft's certificate for the host."},
	}
}

// peer returns the verified certificate of the side's peer, or nil.
func (side tlsSide) peer(x *protocol.Exchange) *protocol.Certificate {
	if t := side(x); t != nil {
		return t.Peer
	}
	return nil
}

// peerText returns the compile function of an operator for a property of the peer's certificate.
func (side tlsSide) peerText(value func(*protocol.Certificate) string) compileOperator {
	return textValue(func(x *protocol.Exchange) (string, bool) {
		c := side.peer(x)
		if c == nil {
			return "", false
		}
		return nonEmpty(value(c))
	})
}

// peerList is peerText for a list.
func (side tlsSide) peerList(values func(dst []string, c *protocol.Certificate) []string) compileOperator {
	return listValue(func(dst []string, x *protocol.Exchange) []string {
		c := side.peer(x)
		if c == nil {
			return dst
		}
		return values(dst, c)
	})
}

// peerTime returns a time in the peer's certificate.
func (side tlsSide) peerTime(value func(*x509.Certificate) time.Time) instant {
	return func(x *protocol.Exchange) time.Time {
		if c := side.peer(x); c != nil {
			for _, parsed := range parseCertificates(c, 1) {
				return value(parsed)
			}
		}
		return time.Time{}
	}
}

// localURIs appends the URI names in the side's local certificate.
func (side tlsSide) localURIs(dst []string, x *protocol.Exchange) []string {
	if t := side(x); t != nil {
		return append(dst, t.LocalURISANs...)
	}
	return dst
}

// cipherOperator compiles an operator for the side's cipher suite.
func (side tlsSide) cipherOperator(*operatorCall, *OperatorOptions) (definition, error) {
	return newText(func(x *protocol.Exchange) (string, bool) {
		t := side(x)
		if t == nil {
			return "", false
		}
		return nonEmpty(openSSLCipher(t.Cipher))
	}), nil
}

// openSSLCipher returns the name of a cipher suite in OpenSSL, which differs from IANA's name
// before TLS 1.3: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
func openSSLCipher(name string) string {
	exchange, cipher, ok := strings.Cut(strings.TrimPrefix(name, "TLS_"), "_WITH_")
	if !ok {
		return name
	}
	prefix := strings.ReplaceAll(exchange, "_", "-") + "-"
	if exchange == "RSA" {
		prefix = ""
	}
	switch {
	case strings.HasPrefix(cipher, "CHACHA20_POLY1305"):
		return prefix + "CHACHA20-POLY1305"
	case strings.HasPrefix(cipher, "3DES_EDE_CBC"):
		return prefix + "DES-CBC3-SHA"
	}
	cipher = strings.NewReplacer("AES_128", "AES128", "AES_256", "AES256", "_CBC", "", "RC4_128", "RC4").Replace(cipher)
	return prefix + strings.ReplaceAll(cipher, "_", "-")
}

// serialNumber returns the serial number with an even number of digits, as OpenSSL writes it.
func serialNumber(c *protocol.Certificate) string { return evenDigits(c.Serial) }

func evenDigits(serial string) string {
	if len(serial)%2 == 1 {
		return "0" + serial
	}
	return serial
}

func sha1Fingerprint(c *protocol.Certificate) string {
	if len(c.Raw) == 0 {
		return ""
	}
	sum := sha1.Sum(c.Raw[0]) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

func chainSHA256(dst []string, c *protocol.Certificate) []string {
	for _, der := range c.Raw {
		sum := sha256.Sum256(der)
		dst = append(dst, hex.EncodeToString(sum[:]))
	}
	return dst
}

func chainSHA1(dst []string, c *protocol.Certificate) []string {
	for _, der := range c.Raw {
		sum := sha1.Sum(der) //nolint:gosec // see the import
		dst = append(dst, hex.EncodeToString(sum[:]))
	}
	return dst
}

// parseCertificates parses the first certificates of a chain. It is expensive, so only operators
// that are rarely used call it.
func parseCertificates(c *protocol.Certificate, limit int) (parsed []*x509.Certificate) {
	for _, der := range c.Raw[:min(len(c.Raw), limit)] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			parsed = append(parsed, cert)
		}
	}
	return parsed
}

func chainSerials(dst []string, c *protocol.Certificate) []string {
	for _, cert := range parseCertificates(c, len(c.Raw)) {
		dst = append(dst, evenDigits(cert.SerialNumber.Text(16)))
	}
	return dst
}

func ipNames(dst []string, c *protocol.Certificate) []string {
	for _, cert := range parseCertificates(c, 1) {
		for _, ip := range cert.IPAddresses {
			dst = append(dst, ip.String())
		}
	}
	return dst
}

func emailNames(dst []string, c *protocol.Certificate) []string {
	for _, cert := range parseCertificates(c, 1) {
		dst = append(dst, cert.EmailAddresses...)
	}
	return dst
}

func escapedCertificate(c *protocol.Certificate) string { return c.EscapedPEM(false) }

func validFrom(c *x509.Certificate) time.Time { return c.NotBefore }

func validTo(c *x509.Certificate) time.Time { return c.NotAfter }
