package config

import (
	"reflect"
	"time"
)

// TLS is an enabled tls_context of a filter chain or a cluster.
type TLS struct {
	// ServerName has two meanings. On a listener it is an SNI name that clients may request in
	// addition to the names in the certificate. On a cluster it is the SNI name that Weft sends and
	// that the host's certificate must match; "": the hostname of each host.
	ServerName string
	// SNI, on a cluster, selects the name that Weft sends instead. config.json has no key for it.
	SNI SNIMode
	// VerifySNI, on a cluster, requires a host certificate that is valid for the name that Weft sends,
	// in addition to the other checks. A connection without a name fails.
	VerifySNI bool

	Certificate, Key PEM // local certificate; a cluster may have none
	TrustedCA        PEM // CAs that verify peer certificates; on a cluster, the zero value means the system's

	ClientAuth ClientAuth // on a listener
	// MatchSANs are the accepted subject alternative names: the peer certificate must have one of
	// them; empty: any. On a cluster they replace ServerName for verification.
	MatchSANs          []SANMatcher
	InsecureSkipVerify bool // on a cluster: do not verify hosts
	// SkipHostnameCheck, on a cluster without MatchSANs, accepts every host certificate that
	// TrustedCA verifies, whatever its name. config.json has no key for it.
	SkipHostnameCheck bool
	// CertificateHashes and PublicKeyHashes are SHA-256 digests of certificates and of their
	// SubjectPublicKeyInfo. The peer certificate must match one of them, in addition to the other
	// checks; both empty: any. config.json has no key for them.
	CertificateHashes, PublicKeyHashes [][32]byte
	// NoSessionResumption, on a cluster, makes each handshake a full one.
	NoSessionResumption bool

	// CipherSuites are OpenSSL or IANA names; empty: credential.SafeCiphers, or the default of
	// crypto/tls if MinVersion is below TLS 1.2.
	CipherSuites           []string
	Curves                 []string   // empty: the default of crypto/tls
	MinVersion, MaxVersion TLSVersion // default TLS 1.2 and the newest version
	// ALPN lists the protocols to offer or to accept; empty: on a listener the protocols of the
	// filter chain, on a cluster the protocol that the connection is opened for.
	ALPN []string
	// ALPNFor, on a cluster, replaces ALPN for connections of one protocol; the key is the ALPN
	// name of the protocol: "h2", "http/1.1". Only a control plane sets it.
	ALPNFor map[string][]string
	// AllowALPNMismatch, on a listener, accepts clients whose offers contain no protocol of ALPN as
	// if they used no ALPN. Only a control plane sets it.
	AllowALPNMismatch bool

	HandshakeTimeout time.Duration // on a listener; default 10 s. A cluster uses Cluster.ConnectTimeout
	// PlaintextFallback, on a listener, ignores this TLS if the files are not usable when the
	// configuration is applied. Without another TLS, the chain serves plaintext.
	PlaintextFallback bool
}

// SNIMode says which name a cluster's connections send as SNI.
type SNIMode uint8

// The modes. Addresses are never sent.
const (
	SNIDefault    SNIMode = iota // TLS.ServerName, or the hostname of the host if that is ""
	SNIServerName                // TLS.ServerName; none if that is ""
	SNIHostname                  // the configured hostname of the host, or TLS.ServerName if it has none
)

// AutoSNI says how the hostname of an HTTP request, its authority without the port, affects the TLS
// connection to the host. If it is enabled, requests for different names never share a connection.
type AutoSNI struct {
	SendSNI        bool   // send the name as SNI instead of TLS.ServerName, unless it is an IP address
	ValidateSAN    bool   // the host's certificate must match the name, in addition to the other checks
	OverrideHeader string // a header that replaces the authority if the request has it; "": none
}

// Enabled reports whether s has an effect.
func (s AutoSNI) Enabled() bool { return s.SendSNI || s.ValidateSAN }

// PEM is the path of a PEM file or, if Path is "", its content; the zero value means none.
type PEM struct{ Path, Text string }

// ClientAuth says whether a listener requests client certificates.
type ClientAuth string

// The modes.
const (
	NoClientCert               ClientAuth = ""
	VerifyClientCertIfGiven    ClientAuth = "verify"  // a certificate is optional, and verified if present
	RequireAndVerifyClientCert ClientAuth = "require" // a certificate is required and verified
)

// TLSVersion is a TLS version as in config.json; "" is the default.
type TLSVersion string

// The versions.
const (
	TLS10 TLSVersion = "tlsv1_0"
	TLS11 TLSVersion = "tlsv1_1"
	TLS12 TLSVersion = "tlsv1_2"
	TLS13 TLSVersion = "tlsv1_3"
)

// SANMatcher matches subject alternative names of one type.
type SANMatcher struct {
	Type SANType
	Name ValueMatch // compares text, which is not empty; not inverted
}

// SANType is a type of subject alternative names.
type SANType string

// The types.
const (
	SANTypeDNS   SANType = "DNS"
	SANTypeURI   SANType = "URI" // such as a SPIFFE ID
	SANTypeIP    SANType = "IP_ADDRESS"
	SANTypeEmail SANType = "EMAIL"
)

// Equal reports whether t and other are equal; either may be nil.
func (t *TLS) Equal(other *TLS) bool { return reflect.DeepEqual(t, other) }
