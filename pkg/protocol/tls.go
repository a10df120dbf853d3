package protocol

// TLS is what the handshake of a connection agreed on. It is immutable.
type TLS struct {
	Version    string // "TLSv1.3", as OpenSSL names it
	Cipher     string // "TLS_AES_128_GCM_SHA256", IANA's name
	ServerName string // that the client asked for (SNI); "" for none
	Protocol   string // that ALPN chose; "" for none
	Resumed    bool   // an earlier session was continued
	// Peer is the certificate that the peer showed and that was verified; nil for none.
	Peer *Certificate
	// LocalURISANs are the subject alternative names of that kind in the certificate that we
	// showed, as a server, or show, as a client.
	LocalURISANs []string
}

// Certificate is what a verified certificate says of its owner. It is immutable.
type Certificate struct {
	Subject, Issuer string   // distinguished names (RFC 4514)
	Serial          string   // hexadecimal
	Fingerprint     string   // SHA-256 of the certificate, hexadecimal
	DNSSANs         []string // subject alternative names
	URISANs         []string // the same; a SPIFFE identity is one
	Raw             [][]byte // the certificate as DER, and behind it those that were sent with it
}
