package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// tlsJSON is tls_context, of listeners and of clusters. A warning reports a setting that has no
// effect on one of the two sides.
type tlsJSON struct {
	Node              document.Node  `key:"."`
	Status            bool           `key:"status" doc:"Whether TLS is enabled." example:"true"`
	ServerName        string         `key:"server_name" doc:"Listener: SNI name that clients may request, in addition to the names in the certificate. Cluster: SNI name that Weft sends and that the host's certificate must match. Absent: the hostname of the host, else its address." example:"\"a.example\""`
	CACert            string         `key:"ca_cert" doc:"CA certificates that verify peer certificates: a path or PEM. Absent in a cluster: those of the system." example:"\"ca.pem\""`
	CertChain         string         `key:"cert_chain" doc:"Certificate and intermediate certificates: a path or PEM. Weft reloads a file when it, or the target of its symbolic link, changes." example:"\"cert.pem\""`
	PrivateKey        string         `key:"private_key" doc:"Private key of the certificate: a path or PEM." secret:"true" example:"\"key.pem\""`
	VerifyClient      bool           `key:"verify_client" doc:"Listener: verify client certificates; a certificate is optional." example:"true"`
	RequireClientCert bool           `key:"require_client_cert" doc:"Listener: reject clients without a certificate, and verify client certificates." example:"true"`
	InsecureSkip      bool           `key:"insecure_skip" doc:"Cluster: do not verify the certificates of hosts." example:"true"`
	CipherSuites      string         `key:"cipher_suites" doc:"Cipher suites of TLS 1.2, separated by colons, with OpenSSL or IANA names. Absent: ECDHE with AES-GCM or ChaCha20-Poly1305." example:"\"ECDHE-RSA-AES256-GCM-SHA384\""`
	ECDHCurves        string         `key:"ecdh_curves" doc:"Key exchange groups, separated by colons: x25519mlkem768, x25519, p256, p384, p521. Absent: all of them." example:"\"x25519:p256\""`
	MinVersion        string         `key:"min_version" doc:"Minimum TLS version. tls_auto: TLS 1.2." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_3\""`
	MaxVersion        string         `key:"max_version" doc:"Maximum TLS version. tls_auto: TLS 1.3." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_2\""`
	ALPN              string         `key:"alpn" doc:"ALPN protocols, separated by commas. Absent: the configured protocols that have an ALPN name, h2 and http/1.1." example:"\"h2,http/1.1\""`
	FallBack          bool           `key:"fall_back" doc:"Listener: serve plaintext if the certificate is not usable when the configuration is applied." example:"true"`
	Peers             []peerNameJSON `key:"match_typed_subject_alt_names" doc:"Accepted subject alternative names: a peer certificate must have one of them. In a cluster they replace the hostname check."`
	HandshakeTimeout  time.Duration  `key:"handshake_timeout" doc:"Listener: maximum time from the first byte to the end of a handshake. For a cluster, set connect_timeout." min:"1ms" default:"10s" example:"\"3s\""`
	SDSSource         document.Node  `key:"sds_source" doc:"Certificates by SDS." accept:"object" unbuilt:"sds_source" example:"{\"certificate_config\": {\"name\": \"default\"}}"`
	Type              string         `key:"type" doc:"Extension that loads certificates." unbuilt:"tls_context.type" example:"\"ext\""`
	ExtendVerify      document.Node  `key:"extend_verify" doc:"Settings of the extension." accept:"object" unbuilt:"extend_verify" example:"{\"name\": \"a\"}"`
}

// peerNameJSON is a subject alternative name matcher with Envoy's keys.
type peerNameJSON struct {
	Node    document.Node   `key:"."`
	Kind    string          `key:"san_type" doc:"Type of the name." required:"true" enum:"DNS|URI|IP_ADDRESS|EMAIL" example:"\"URI\""`
	Matcher nameMatcherJSON `key:"matcher" doc:"Condition on the name: one of exact, prefix, suffix, contains and safe_regex." required:"true"`
}

type nameMatcherJSON struct {
	Node       document.Node `key:"."`
	Exact      string        `key:"exact" doc:"Exact name." example:"\"spiffe://shop/ns/default/sa/orders\""`
	Prefix     string        `key:"prefix" doc:"Prefix of the name." example:"\"spiffe://shop/ns/default/\""`
	Suffix     string        `key:"suffix" doc:"Suffix of the name." example:"\".shop.example\""`
	Contains   string        `key:"contains" doc:"Substring of the name." example:"\"/ns/default/\""`
	Regex      regexJSON     `key:"safe_regex" doc:"Regular expression (RE2) that matches the whole name."`
	IgnoreCase bool          `key:"ignore_case" doc:"Ignore case; not with safe_regex." example:"true"`
}

type regexJSON struct {
	Node  document.Node `key:"."`
	Regex string        `key:"regex" doc:"The regular expression." required:"true" example:"\"spiffe://shop/ns/[^/]+/sa/orders\""`
}
