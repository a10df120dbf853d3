package config

import (
	"reflect"
	"time"
)

// TLS is one tls_context that is on: of a listener's filter chain, or of a cluster.
type TLS struct {
	// ServerName is, of a listener, a name that callers may ask for beside those in the
	// certificate; of a cluster, the name that is asked for and that hosts must prove
	// to have; "": each host's own.
	ServerName string

	Certificate, Key PEM // ours; a cluster may have none
	Authorities      PEM // that peers are checked with; of a cluster, none is the system's

	ClientCertificate ClientCertificate // of a listener
	// Peers are the subject alternative names of which a peer's certificate must have
	// one; none: any will do. Of a cluster they stand in the place of ServerName.
	Peers      []PeerName
	SkipVerify bool // of a cluster: hosts may be anybody
	// AnyName: of a cluster without Peers, hosts may be anybody whom Authorities have given
	// a certificate, whatever the name in it. config.json has no word for it.
	AnyName bool

	Ciphers                []string   // by OpenSSL's or IANA's names; none: the safe ones
	Curves                 []string   // none: as crypto/tls has it
	MinVersion, MaxVersion TLSVersion // default TLS 1.2 and the newest
	ALPN                   []string   // none: what is carried on the connection
	// ALPNFor, of a cluster, is offered in the place of ALPN on connections that carry what
	// ALPN calls so: "h2", "http/1.1". Never configured.
	ALPNFor map[string][]string
	// AnyALPN: of a listener, callers that offer nothing of ALPN are served as if they had
	// offered nothing at all. Never configured.
	AnyALPN bool

	HandshakeTimeout time.Duration // of a listener; default 10 s. A cluster's is connect_timeout
	// Fallback: of a listener, plaintext is spoken if the files cannot be used when the
	// configuration is applied.
	Fallback bool
}

// RequestName is what the name of the host that a request of HTTP is for has to do with
// the connection that it is sent on, over TLS: its Authority without the port. Requests for
// different names never share a connection to a host then.
type RequestName struct {
	SNI    bool   // it is asked for, in the place of TLS.ServerName; an address is not
	Verify bool   // the host's certificate must be for it, whatever else TLS asks for
	Field  string // whose value is the name in the place of Authority, if a request has it; ""
}

// Counts reports whether r asks for anything.
func (r RequestName) Counts() bool { return r.SNI || r.Verify }

// PEM is a file, or its content where Path is ""; the zero value is none.
type PEM struct{ Path, Text string }

// ClientCertificate is what a listener asks of its callers.
type ClientCertificate string

// What may be asked.
const (
	NoClientCertificate      ClientCertificate = ""
	VerifyClientCertificate  ClientCertificate = "verify"  // a certificate is checked if there is one
	RequireClientCertificate ClientCertificate = "require" // there must be one, and it is checked
)

// TLSVersion is a version as config.json spells it; "" is the default.
type TLSVersion string

// The versions.
const (
	TLS10 TLSVersion = "tlsv1_0"
	TLS11 TLSVersion = "tlsv1_1"
	TLS12 TLSVersion = "tlsv1_2"
	TLS13 TLSVersion = "tlsv1_3"
)

// PeerName says which subject alternative names of one kind will do. One of the
// texts is set; Regex (RE2) must match the whole name.
type PeerName struct {
	Kind                                   NameKind
	Exact, Prefix, Suffix, Contains, Regex string
	IgnoreCase                             bool
}

// NameKind is a kind of subject alternative name.
type NameKind string

// The kinds.
const (
	NameDNS   NameKind = "DNS"
	NameURI   NameKind = "URI" // a SPIFFE identity is one
	NameIP    NameKind = "IP_ADDRESS"
	NameEmail NameKind = "EMAIL"
)

// Equal reports whether t and other mean the same; either may be nil.
func (t *TLS) Equal(other *TLS) bool { return reflect.DeepEqual(t, other) }
