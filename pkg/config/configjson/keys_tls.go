package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// tlsJSON is tls_context, of listeners and of clusters. A warning reports a setting that has no
// effect on one of the two sides.
type tlsJSON struct {
	Node              document.Node  `key:"."`
	Status            bool           `key:"status" doc:"Whether TLS is on." example:"true"`
	ServerName        string         `key:"server_name" doc:"Listener: a name that callers may ask for (SNI), beside those in the certificate. Cluster: the name that is asked for and that hosts must prove to have; absent: hostname, else the address." example:"\"a.example\""`
	CACert            string         `key:"ca_cert" doc:"Authorities that certificates are checked with: a path or PEM. Absent in a cluster: those of the system." example:"\"ca.pem\""`
	CertChain         string         `key:"cert_chain" doc:"Certificate and those between it and the authority: a path or PEM. A file is read again when it, or what it links to, is another." example:"\"cert.pem\""`
	PrivateKey        string         `key:"private_key" doc:"Key of the certificate: a path or PEM." secret:"true" example:"\"key.pem\""`
	VerifyClient      bool           `key:"verify_client" doc:"Listener: check the certificate that a caller shows." example:"true"`
	RequireClientCert bool           `key:"require_client_cert" doc:"Listener: refuse callers without a certificate; the one that they show is checked." example:"true"`
	InsecureSkip      bool           `key:"insecure_skip" doc:"Cluster: do not check the certificates of hosts." example:"true"`
	CipherSuites      string         `key:"cipher_suites" doc:"Cipher suites of TLS 1.2, separated by colons, by OpenSSL's or IANA's names; absent: ECDHE with AES-GCM or ChaCha20-Poly1305." example:"\"ECDHE-RSA-AES256-GCM-SHA384\""`
	ECDHCurves        string         `key:"ecdh_curves" doc:"Groups of the key exchange, separated by colons: x25519mlkem768, x25519, p256, p384, p521; absent: all of them." example:"\"x25519:p256\""`
	MinVersion        string         `key:"min_version" doc:"Lowest version; tls_auto: TLS 1.2." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_3\""`
	MaxVersion        string         `key:"max_version" doc:"Highest version; tls_auto: TLS 1.3." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_2\""`
	ALPN              string         `key:"alpn" doc:"Protocols that are offered, separated by commas; absent: those that are carried and have a name, h2 and http/1.1." example:"\"h2,http/1.1\""`
	FallBack          bool           `key:"fall_back" doc:"Listener: speak plaintext if the certificate cannot be used when the configuration is applied." example:"true"`
	Peers             []peerNameJSON `key:"match_typed_subject_alt_names" doc:"Names of which a peer's certificate must have one. In a cluster they stand in the place of the host's name."`
	HandshakeTimeout  time.Duration  `key:"handshake_timeout" doc:"Listener: from the first byte of a handshake to its end. A cluster has connect_timeout." min:"1ms" default:"10s" example:"\"3s\""`
	SDSSource         document.Node  `key:"sds_source" doc:"Where certificates come from by SDS." accept:"object" unbuilt:"sds_source" example:"{\"certificate_config\": {\"name\": \"default\"}}"`
	Type              string         `key:"type" doc:"Extension that loads certificates." unbuilt:"tls_context.type" example:"\"ext\""`
	ExtendVerify      document.Node  `key:"extend_verify" doc:"Settings of the extension." accept:"object" unbuilt:"extend_verify" example:"{\"name\": \"a\"}"`
}

// peerNameJSON is a subject alternative name matcher with Envoy's keys.
type peerNameJSON struct {
	Node    document.Node   `key:"."`
	Kind    string          `key:"san_type" doc:"Kind of the name." required:"true" enum:"DNS|URI|IP_ADDRESS|EMAIL" example:"\"URI\""`
	Matcher nameMatcherJSON `key:"matcher" doc:"What it is: one of exact, prefix, suffix, contains and safe_regex." required:"true"`
}

type nameMatcherJSON struct {
	Node       document.Node `key:"."`
	Exact      string        `key:"exact" doc:"The whole name." example:"\"spiffe://shop/ns/default/sa/orders\""`
	Prefix     string        `key:"prefix" doc:"Its beginning." example:"\"spiffe://shop/ns/default/\""`
	Suffix     string        `key:"suffix" doc:"Its end." example:"\".shop.example\""`
	Contains   string        `key:"contains" doc:"A part of it." example:"\"/ns/default/\""`
	Regex      regexJSON     `key:"safe_regex" doc:"An expression (RE2) for the whole name."`
	IgnoreCase bool          `key:"ignore_case" doc:"Whether case does not count; not with safe_regex." example:"true"`
}

type regexJSON struct {
	Node  document.Node `key:"."`
	Regex string        `key:"regex" doc:"The expression." required:"true" example:"\"spiffe://shop/ns/[^/]+/sa/orders\""`
}
