package configjson

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
)

// tlsJSON is a tls_context of a listener, a cluster or a registry. warnIneffective warns about
// settings that have no effect there.
type tlsJSON struct {
	Node              document.Node  `key:"."`
	Status            bool           `key:"status" doc:"Whether TLS is enabled." example:"true"`
	ServerName        string         `key:"server_name" doc:"Listener: SNI name that clients may request, in addition to the names in the certificate. Cluster: SNI name that Weft sends and that the host's certificate must match. Absent: the hostname of the host, else its address." example:"\"a.example\""`
	CACert            string         `key:"ca_cert" doc:"CA certificates that verify peer certificates: a path or PEM. Absent in a cluster: the CA certificates of the system." example:"\"ca.pem\""`
	CertChain         string         `key:"cert_chain" doc:"Certificate and intermediate certificates: a path or PEM. Weft reloads a file when it, or the target of its symbolic link, changes." example:"\"cert.pem\""`
	PrivateKey        string         `key:"private_key" doc:"Private key of the certificate: a path or PEM." secret:"true" example:"\"key.pem\""`
	VerifyClient      bool           `key:"verify_client" doc:"Listener: verify client certificates; a certificate is optional." example:"true"`
	RequireClientCert bool           `key:"require_client_cert" doc:"Listener: reject clients without a certificate, and verify client certificates." example:"true"`
	InsecureSkip      bool           `key:"insecure_skip" doc:"Cluster: do not verify the certificates of hosts." example:"true"`
	CipherSuites      string         `key:"cipher_suites" doc:"Cipher suites of TLS 1.2, separated by colons, with OpenSSL or IANA names. Absent: ECDHE with AES-GCM or ChaCha20-Poly1305, or the defaults of Go if min_version is below tlsv1_2." example:"\"ECDHE-RSA-AES256-GCM-SHA384\""`
	ECDHCurves        string         `key:"ecdh_curves" doc:"Key exchange groups, separated by colons: x25519mlkem768, x25519, p256, p384, p521. Absent: the defaults of Go, which are these and two further hybrid groups with ML-KEM." example:"\"x25519:p256\""`
	MinVersion        string         `key:"min_version" doc:"Minimum TLS version. tls_auto: TLS 1.2." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_3\""`
	MaxVersion        string         `key:"max_version" doc:"Maximum TLS version. tls_auto: TLS 1.3." enum:"tls_auto|tlsv1_0|tlsv1_1|tlsv1_2|tlsv1_3" default:"tls_auto" example:"\"tlsv1_2\""`
	ALPN              string         `key:"alpn" doc:"ALPN protocols, separated by commas. Absent: on a listener, the protocols of the proxy that have an ALPN name (h2, http/1.1); on a cluster, the protocol of the connection." example:"\"h2,http/1.1\""`
	FallBack          bool           `key:"fall_back" doc:"Listener: ignore this context if its files are not usable when the configuration is applied; without another context, serve plaintext." example:"true"`
	Peers             []peerNameJSON `key:"match_typed_subject_alt_names" doc:"Accepted subject alternative names: a peer certificate must have one of them. In a cluster they replace the hostname check."`
	HandshakeTimeout  time.Duration  `key:"handshake_timeout" doc:"Listener: maximum time from the first byte to the end of a handshake. For a cluster, set connect_timeout." min:"1ms" default:"10s" example:"\"3s\""`
	SDSSource         document.Node  `key:"sds_source" doc:"Certificates by SDS." accept:"object" unsupported:"sds_source" example:"{\"certificate_config\": {\"name\": \"default\"}}"`
	Type              string         `key:"type" doc:"Extension that loads certificates." unsupported:"tls_context.type" example:"\"ext\""`
	ExtendVerify      document.Node  `key:"extend_verify" doc:"Settings of the extension." accept:"object" unsupported:"extend_verify" example:"{\"name\": \"a\"}"`
}

// peerNameJSON is a subject alternative name matcher with Envoy's keys.
type peerNameJSON struct {
	Node    document.Node   `key:"."`
	Kind    string          `key:"san_type" doc:"Type of the name." required:"true" enum:"DNS|URI|IP_ADDRESS|EMAIL" example:"\"URI\""`
	Matcher nameMatcherJSON `key:"matcher" doc:"Condition on the name: one of exact, prefix, suffix, contains and safe_regex." required:"true"`
}

type nameMatcherJSON struct {
	Node       document.Node `key:"."`
	Exact      string        `key:"exact" doc:"Exact name. For DNS, case makes no difference, and a wildcard in the certificate also matches." example:"\"spiffe://shop/ns/default/sa/orders\""`
	Prefix     string        `key:"prefix" doc:"Prefix of the name." example:"\"spiffe://shop/ns/default/\""`
	Suffix     string        `key:"suffix" doc:"Suffix of the name." example:"\".shop.example\""`
	Contains   string        `key:"contains" doc:"Substring of the name." example:"\"/ns/default/\""`
	Regex      regexJSON     `key:"safe_regex" doc:"Regular expression (RE2) that matches the whole name."`
	IgnoreCase bool          `key:"ignore_case" doc:"Ignore the case of ASCII letters. No effect with safe_regex, or with exact for DNS, which always ignores case." example:"true"`
}

type regexJSON struct {
	Node  document.Node `key:"."`
	Regex string        `key:"regex" doc:"The regular expression." required:"true" example:"\"spiffe://shop/ns/[^/]+/sa/orders\""`
}

// tlsSide says whether a tls_context is for connections from clients (listenerTLS) or for
// connections to hosts and registries (clusterTLS).
type tlsSide bool

const (
	listenerTLS tlsSide = true
	clusterTLS  tlsSide = false
)

// tlsReader reads the objects of every key "tls_context".
type tlsReader struct{ *input }

// readContext converts a tls_context. It returns nil if the tls_context is absent or disabled.
func (r *tlsReader) readContext(j *tlsJSON, side tlsSide) *config.TLS {
	if j == nil || !j.Status {
		r.warnMissingStatus(j)
		return nil
	}
	t := &config.TLS{
		ServerName:  j.ServerName,
		Certificate: r.parsePEM(j.CertChain), Key: r.parsePEM(j.PrivateKey), TrustedCA: r.parsePEM(j.CACert),
		InsecureSkipVerify: j.InsecureSkip,
		MinVersion:         convertTLSVersion(j.MinVersion), MaxVersion: convertTLSVersion(j.MaxVersion),
		ALPN:              splitList(j.ALPN, ","),
		HandshakeTimeout:  j.HandshakeTimeout,
		PlaintextFallback: j.FallBack,
	}
	switch {
	case j.RequireClientCert:
		t.ClientAuth = config.RequireAndVerifyClientCert
	case j.VerifyClient:
		t.ClientAuth = config.VerifyClientCertIfGiven
	}
	errorsBefore := r.report.Errors()
	r.readCipherSuites(j, t)
	r.checkVersions(j, t)
	for i := range j.Peers {
		r.readSANMatcher(&j.Peers[i], t)
	}
	r.warnIneffective(j, side)
	if r.report.Errors() == errorsBefore {
		r.checkCredentials(j, t, side)
	}
	return t
}

// warnMissingStatus warns about a tls_context that has settings but no status.
func (r *tlsReader) warnMissingStatus(j *tlsJSON) {
	if j == nil || j.Node.Get("status").Exists() {
		return
	}
	for range j.Node.All() {
		r.report.Warnf(j.Node, "TLS is disabled: set \"status\" to true to enable it")
		return
	}
}

// parsePEM converts a path or PEM text.
func (r *tlsReader) parsePEM(text string) config.PEM {
	switch {
	case strings.TrimSpace(text) == "":
		return config.PEM{}
	case strings.Contains(text, "-----BEGIN "):
		return config.PEM{Text: text}
	case filepath.IsAbs(text):
		return config.PEM{Path: text}
	}
	path, _, _ := readRelative(r.file, text, r.files.ReadFile) // checkCredentials reports a missing file
	return config.PEM{Path: path}
}

// splitList splits a list and drops empty elements.
func splitList(text, separator string) []string {
	var out []string
	for part := range strings.SplitSeq(text, separator) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func convertTLSVersion(text string) config.TLSVersion {
	if text == "tls_auto" {
		return ""
	}
	return config.TLSVersion(text)
}

// readCipherSuites converts the keys "cipher_suites" and "ecdh_curves".
func (r *tlsReader) readCipherSuites(j *tlsJSON, t *config.TLS) {
	node := j.Node.Get("cipher_suites")
	for _, name := range splitList(j.CipherSuites, ":") {
		_, safe, ok := credential.Cipher(name)
		switch {
		case !ok:
			r.report.Unknown(node, "cipher suite", name, slices.Collect(credential.CipherNames()))
			continue
		case !safe:
			r.report.Warnf(node, "the cipher suite %s is weak: it lacks forward secrecy or authenticated encryption", name)
		}
		t.CipherSuites = append(t.CipherSuites, name)
	}
	for _, name := range splitList(j.ECDHCurves, ":") {
		if _, ok := credential.Curve(name); !ok {
			r.report.Unknown(j.Node.Get("ecdh_curves"), "curve", name, credential.CurveNames())
			continue
		}
		t.Curves = append(t.Curves, name)
	}
}

// checkVersions checks the TLS versions, whose names sort in version order.
func (r *tlsReader) checkVersions(j *tlsJSON, t *config.TLS) {
	lowest, highest := t.MinVersion, t.MaxVersion
	if lowest == "" {
		lowest = config.TLS12
	}
	if highest == "" {
		highest = config.TLS13
	}
	if lowest < config.TLS12 {
		r.report.Warnf(j.Node.Get("min_version"), "TLS versions before 1.2 are insecure (RFC 8996): allow them only for clients that support no other version")
	}
	if lowest > highest {
		r.report.Errorf(j.Node.Get("max_version").Or(j.Node.Get("min_version")), "max_version is lower than the minimum version, %s", lowest)
	}
	if node := j.Node.Get("cipher_suites"); node.Exists() && lowest == config.TLS13 {
		r.report.Warnf(node, "cipher_suites has no effect on TLS 1.3")
	}
}

// readSANMatcher converts an element of match_typed_subject_alt_names.
func (r *tlsReader) readSANMatcher(j *peerNameJSON, t *config.TLS) {
	m := &j.Matcher
	p := config.SANMatcher{Type: config.SANType(j.Kind), Name: config.ValueMatch{IgnoreCase: m.IgnoreCase}}
	conditions := 0
	for kind, text := range map[config.ValueKind]string{
		config.ValueExact: m.Exact, config.ValuePrefix: m.Prefix, config.ValueSuffix: m.Suffix, config.ValueContains: m.Contains,
		config.ValueRegex: m.Regex.Regex,
	} {
		if text != "" {
			p.Name.Kind, p.Name.Text = kind, text
			conditions++
		}
	}
	switch {
	case conditions != 1 && m.Node.Exists():
		r.report.Errorf(m.Node, "expected one of exact, prefix, suffix, contains and safe_regex")
	case m.Regex.Regex != "":
		r.checkRegex(m.Regex.Node, "regex", m.Regex.Regex)
		if m.IgnoreCase {
			r.report.Warnf(m.Node.Get("ignore_case"), "ignore_case has no effect on safe_regex: use (?i) in the expression")
		}
	}
	t.MatchSANs = append(t.MatchSANs, p)
}

// warnIneffective warns about settings that have no effect on this side, or without other settings.
func (r *tlsReader) warnIneffective(j *tlsJSON, side tlsSide) {
	keys, context := []string{"verify_client", "require_client_cert", "fall_back", "handshake_timeout"}, "on connections to hosts"
	if side == listenerTLS {
		keys, context = []string{"insecure_skip"}, "on connections from clients"
	}
	for _, key := range keys {
		if node := j.Node.Get(key); node.Exists() {
			r.report.Warnf(node, "%s has no effect %s", key, context)
		}
	}
	if side == clusterTLS && j.InsecureSkip {
		r.report.Warnf(j.Node.Get("insecure_skip"), "insecure_skip disables the verification of the hosts' certificates: any server is accepted")
	}
	if node := j.Node.Get("ca_cert"); side == listenerTLS && node.Exists() && !j.RequireClientCert && !j.VerifyClient {
		r.report.Warnf(node, "ca_cert has no effect without require_client_cert or verify_client")
	}
	names := j.Node.Get("match_typed_subject_alt_names")
	switch {
	case !names.Exists() || len(j.Peers) == 0:
	case side == clusterTLS && j.InsecureSkip:
		r.report.Warnf(names, "match_typed_subject_alt_names has no effect together with insecure_skip")
	case side == listenerTLS && !j.RequireClientCert && !j.VerifyClient:
		r.report.Errorf(names, "match_typed_subject_alt_names requires require_client_cert or verify_client")
	case side == listenerTLS && !j.RequireClientCert:
		r.report.Warnf(names, "clients without a certificate are accepted: set require_client_cert to reject them")
	}
}

// checkCredentials loads the certificates and keys of t, and reports unusable ones.
func (r *tlsReader) checkCredentials(j *tlsJSON, t *config.TLS, side tlsSide) {
	c, err := stream.NewTLSContext(t, nil)
	if err == nil {
		err = c.Check(side == listenerTLS, func(p credential.PEM) ([]byte, error) {
			if p.Path == "" {
				return p.Read()
			}
			return r.files.ReadFile(p.Path)
		})
	}
	switch {
	case err == nil:
	case side == listenerTLS && j.FallBack:
		r.report.Warnf(j.Node, "%v: the listener serves plaintext because of fall_back", err)
	default:
		r.report.Errorf(j.Node, "%v", err)
	}
}
