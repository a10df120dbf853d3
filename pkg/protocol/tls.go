package protocol

// TLS describes the TLS session of a connection. It is immutable.
type TLS struct {
	Version    string // "TLSv1.3", as OpenSSL names it
	Cipher     string // "TLS_AES_128_GCM_SHA256", IANA's name
	ServerName string // the name that the client requested (SNI); "" for none
	Protocol   string // the protocol that ALPN selected; "" for none
	Resumed    bool   // the handshake resumed an earlier session
	// Peer is the peer certificate if it was verified; otherwise nil.
	Peer *Certificate
	// LocalURISANs are the URI subject alternative names of the local certificate.
	LocalURISANs []string
}

// Certificate describes a verified certificate. It is immutable.
type Certificate struct {
	Subject, Issuer string   // distinguished names (RFC 4514)
	Serial          string   // hexadecimal
	Fingerprint     string   // SHA-256 of the certificate, hexadecimal
	DNSSANs         []string // DNS subject alternative names
	URISANs         []string // URI subject alternative names, such as a SPIFFE identity
	Raw             [][]byte // the certificate as DER, followed by the certificates that were sent with it
}
