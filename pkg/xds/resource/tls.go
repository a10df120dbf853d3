package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
)

// TLS is one TLS context. Parts of it may be SecretType resources.
type TLS struct {
	Config *config.TLS // without the secrets below. Immutable
	// Certificate and TrustedCA refer to SecretType resources. The zero value means that Config has
	// the certificates or that there are none.
	Certificate, TrustedCA SecretRef
}

// Secrets returns the secrets that t refers to; t may be nil.
func (t *TLS) Secrets() (refs []SecretRef) {
	if t == nil {
		return nil
	}
	for _, s := range []SecretRef{t.Certificate, t.TrustedCA} {
		if s.Name != "" {
			refs = append(refs, s)
		}
	}
	return refs
}

// Resolve returns the context with its secrets. ok is false if a secret is missing or has the wrong
// type. t may be nil.
func (t *TLS) Resolve(secrets map[SecretRef]*Secret) (out *config.TLS, ok bool) {
	if t == nil {
		return nil, true
	}
	if t.Certificate.Name == "" && t.TrustedCA.Name == "" {
		return t.Config, true
	}
	merged := *t.Config
	if t.Certificate.Name != "" {
		s := secrets[t.Certificate]
		if s == nil || s.Certificate == (config.PEM{}) {
			return nil, false
		}
		merged.Certificate, merged.Key = s.Certificate, s.Key
	}
	if t.TrustedCA.Name != "" {
		s := secrets[t.TrustedCA]
		if s == nil || s.TrustedCA == (config.PEM{}) {
			return nil, false
		}
		merged.CertificateHashes = slices.Concat(merged.CertificateHashes, s.CertificateHashes)
		merged.PublicKeyHashes = slices.Concat(merged.PublicKeyHashes, s.PublicKeyHashes)
		merged.TrustedCA = s.TrustedCA
		merged.MatchSANs = append(merged.MatchSANs[:len(merged.MatchSANs):len(merged.MatchSANs)], s.MatchSANs...)
		merged.SkipHostnameCheck = merged.SkipHostnameCheck && len(merged.MatchSANs) == 0
	}
	return &merged, true
}

// Secret is the parsed form of a SecretType resource: a certificate with its key, or a validation
// context.
type Secret struct {
	Name             string
	Certificate, Key config.PEM
	TrustedCA        config.PEM
	MatchSANs        []config.SANMatcher
	// CertificateHashes and PublicKeyHashes are those of config.TLS.
	CertificateHashes, PublicKeyHashes [][32]byte

	Ignored []string
}

// ReadSecret parses a serialized Secret. The error is a RejectedError.
func ReadSecret(body []byte, caps Capabilities) (*Secret, error) {
	m := &tlsv3.Secret{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	s := &Secret{Name: m.GetName()}
	switch t := m.GetType().(type) {
	case *tlsv3.Secret_TlsCertificate:
		s.Certificate, s.Key = p.field("tls_certificate").readCertificate(t.TlsCertificate)
	case *tlsv3.Secret_ValidationContext:
		out := &config.TLS{}
		p.field("validation_context").readValidation(t.ValidationContext, out)
		s.TrustedCA, s.MatchSANs = out.TrustedCA, out.MatchSANs
		s.CertificateHashes, s.PublicKeyHashes = out.CertificateHashes, out.PublicKeyHashes
		if s.TrustedCA == (config.PEM{}) {
			p.field("validation_context").field("trusted_ca").reject("is missing")
		}
	default:
		p.rejectOneof(m, "type", "tls_certificate", "validation_context")
	}
	err := r.rejection()
	s.Ignored = r.ignored
	return s, err
}

// readDownstreamTLS reads the transport socket of downstream connections. It returns nil for
// plaintext or if the socket is rejected.
func (p fieldReader) readDownstreamTLS(s *corev3.TransportSocket) (t *TLS) {
	packed := s.GetTypedConfig()
	at := p.field("typed_config")
	m := &tlsv3.DownstreamTlsContext{}
	switch {
	case s == nil, packed == nil && s.GetName() == "envoy.transport_sockets.raw_buffer", isType(packed, &rawv3.RawBuffer{}):
		return nil
	case !isType(packed, m):
		p.reject("%s %s is not supported", s.GetName(), packed.GetTypeUrl())
		return nil
	case !at.unpack(packed, m):
		return nil
	}
	at.checkFields(m, []string{"common_tls_context", "require_client_certificate", "disable_stateful_session_resumption", "ocsp_staple_policy", "require_sni"},
		[]string{"disable_stateless_session_resumption"})
	if m.GetRequireSni().GetValue() {
		at.field("require_sni").rejectUnsupported()
	}
	if m.GetOcspStaplePolicy() == tlsv3.DownstreamTlsContext_MUST_STAPLE {
		at.field("ocsp_staple_policy").rejectUnsupported()
	}
	t = at.field("common_tls_context").readCommonTLS(m.GetCommonTlsContext())
	t.Config.HandshakeTimeout, t.Config.AllowALPNMismatch = 10*time.Second, true
	if len(t.Config.CertificateHashes)+len(t.Config.PublicKeyHashes) > 0 && t.TrustedCA.Name == "" && t.Config.TrustedCA == (config.PEM{}) {
		at.field("common_tls_context").field("validation_context").reject("verify_certificate_hash and verify_certificate_spki of a listener require a trusted_ca")
	}
	switch {
	case m.GetRequireClientCertificate().GetValue():
		t.Config.ClientAuth = config.RequireAndVerifyClientCert
		if t.TrustedCA.Name == "" && t.Config.TrustedCA == (config.PEM{}) {
			at.field("require_client_certificate").reject("requires a validation context with a trusted_ca")
		}
	case t.TrustedCA.Name != "" || t.Config.TrustedCA != (config.PEM{}):
		t.Config.ClientAuth = config.VerifyClientCertIfGiven
	}
	if c := m.GetCommonTlsContext(); len(c.GetTlsCertificates())+len(c.GetTlsCertificateSdsSecretConfigs()) == 0 { // readCommonTLS reports other problems
		at.field("common_tls_context").reject("has no certificate")
	}
	return t
}

func (p fieldReader) readCommonTLS(m *tlsv3.CommonTlsContext) *TLS {
	t := &TLS{Config: &config.TLS{}}
	p.checkFields(m, []string{
		"tls_params", "tls_certificates", "tls_certificate_sds_secret_configs", "validation_context",
		"validation_context_sds_secret_config", "combined_validation_context", "alpn_protocols",
	}, []string{
		"tls_certificate_provider_instance", "custom_tls_certificate_selector", "tls_certificate_certificate_provider",
		"tls_certificate_certificate_provider_instance", "validation_context_certificate_provider",
		"validation_context_certificate_provider_instance", "custom_handshaker",
	})
	p.field("alpn_protocols").readALPN(m.GetAlpnProtocols(), t.Config)
	p.field("tls_params").readParameters(m.GetTlsParams(), t.Config)
	switch inline, refs := m.GetTlsCertificates(), m.GetTlsCertificateSdsSecretConfigs(); {
	case len(inline)+len(refs) > 1:
		p.reject("has several certificates: only one is supported")
	case len(inline) == 1:
		t.Config.Certificate, t.Config.Key = p.field("tls_certificates").index(0).readCertificate(inline[0])
	case len(refs) == 1:
		t.Certificate = p.field("tls_certificate_sds_secret_configs").index(0).readSecretRef(refs[0])
	}
	p.readValidationType(m, t)
	if len(t.Config.MatchSANs) > 0 && t.TrustedCA.Name == "" && t.Config.TrustedCA == (config.PEM{}) {
		p.reject("verification of peer names requires a trusted_ca")
	}
	return t
}

// istioPeerExchangeALPN is the ALPN name of TCP connections on which Istio sidecars first exchange
// metadata. Weft would treat that metadata as payload.
const istioPeerExchangeALPN = "istio-peer-exchange"

// readALPN reads the ALPN protocols. Istio's sidecars offer istio-* protocols so that the filter
// chains of the peer can match them. Istio configures that with the filter istio.alpn. Weft does
// the same for every context with the ALPN protocol "istio".
func (p fieldReader) readALPN(list []string, out *config.TLS) {
	out.ALPN = slices.DeleteFunc(slices.Clone(list), func(name string) bool { return name == istioPeerExchangeALPN })
	if len(out.ALPN) < len(list) {
		p.key(istioPeerExchangeALPN).ignore()
	}
	if slices.Contains(out.ALPN, "istio") {
		out.ALPNFor = map[string][]string{
			"http/1.1": {"istio-http/1.1", "istio", "http/1.1"},
			"h2":       {"istio-h2", "istio", "h2"},
		}
	}
}

// readValidationType reads how to verify peer certificates.
func (p fieldReader) readValidationType(m *tlsv3.CommonTlsContext, t *TLS) {
	switch v := m.GetValidationContextType().(type) {
	case nil:
	case *tlsv3.CommonTlsContext_ValidationContext:
		p.field("validation_context").readValidation(v.ValidationContext, t.Config)
	case *tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig:
		t.TrustedCA = p.field("validation_context_sds_secret_config").readSecretRef(v.ValidationContextSdsSecretConfig)
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		at := p.field("combined_validation_context")
		at.checkFields(v.CombinedValidationContext, []string{"default_validation_context", "validation_context_sds_secret_config"},
			[]string{"validation_context_certificate_provider", "validation_context_certificate_provider_instance"})
		at.field("default_validation_context").readValidation(v.CombinedValidationContext.GetDefaultValidationContext(), t.Config)
		t.TrustedCA = at.field("validation_context_sds_secret_config").readSecretRef(v.CombinedValidationContext.GetValidationContextSdsSecretConfig())
	default: // checkFields rejects it
	}
}

func (p fieldReader) readParameters(m *tlsv3.TlsParameters, out *config.TLS) {
	if m == nil {
		return
	}
	p.checkFields(m, []string{"tls_minimum_protocol_version", "tls_maximum_protocol_version", "cipher_suites", "ecdh_curves"}, []string{"compliance_policies", "signature_algorithms"})
	out.MinVersion = p.field("tls_minimum_protocol_version").readTLSVersion(m.GetTlsMinimumProtocolVersion())
	out.MaxVersion = p.field("tls_maximum_protocol_version").readTLSVersion(m.GetTlsMaximumProtocolVersion())
	if out.MinVersion != "" && out.MaxVersion != "" && m.GetTlsMinimumProtocolVersion() > m.GetTlsMaximumProtocolVersion() {
		p.reject("the minimum version %s is later than the maximum version %s", out.MinVersion, out.MaxVersion)
	}
	out.CipherSuites, out.Curves = p.field("cipher_suites").readCiphers(m.GetCipherSuites()), m.GetEcdhCurves()
	for i, name := range out.Curves {
		if _, ok := credential.Curve(name); !ok {
			p.field("ecdh_curves").index(i).reject("%q is not a supported curve", name)
		}
	}
}

// readCiphers returns the names of cipher suites. Neither the order nor brackets, which make suites
// equal in BoringSSL, have an effect: crypto/tls has an order of its own.
func (p fieldReader) readCiphers(list []string) (names []string) {
	for i, entry := range list {
		for name := range strings.SplitSeq(strings.Trim(entry, "[]"), "|") {
			if _, _, ok := credential.Cipher(name); !ok {
				p.index(i).reject("%q is not a supported cipher suite", name)
				continue
			}
			names = append(names, name)
		}
	}
	return names
}

func (p fieldReader) readTLSVersion(v tlsv3.TlsParameters_TlsProtocol) config.TLSVersion {
	switch v {
	case tlsv3.TlsParameters_TLS_AUTO:
		return ""
	case tlsv3.TlsParameters_TLSv1_0:
		return config.TLS10
	case tlsv3.TlsParameters_TLSv1_1:
		return config.TLS11
	case tlsv3.TlsParameters_TLSv1_2:
		return config.TLS12
	case tlsv3.TlsParameters_TLSv1_3:
		return config.TLS13
	}
	p.reject("%v is not supported", v)
	return ""
}

func (p fieldReader) readCertificate(m *tlsv3.TlsCertificate) (certificate, key config.PEM) {
	p.checkFields(m, []string{"certificate_chain", "private_key", "watched_directory"},
		[]string{"pkcs12", "private_key_provider", "password"})
	certificate = p.field("certificate_chain").readDataSource(m.GetCertificateChain())
	key = p.field("private_key").readDataSource(m.GetPrivateKey())
	if isEmptySource(m.GetCertificateChain()) {
		p.field("certificate_chain").reject("is missing")
	}
	if isEmptySource(m.GetPrivateKey()) {
		p.field("private_key").reject("is missing")
	}
	if certificate.Text != "" && key.Text != "" {
		p.checkCertificate(&credential.Context{Certificate: credential.PEM(certificate), Key: credential.PEM(key)})
	}
	return certificate, key
}

func (p fieldReader) readValidation(m *tlsv3.CertificateValidationContext, out *config.TLS) {
	if m == nil {
		return
	}
	p.checkFields(m, []string{"trusted_ca", "match_subject_alt_names", "match_typed_subject_alt_names", "watched_directory", "trust_chain_verification", "verify_certificate_spki", "verify_certificate_hash"},
		[]string{
			"ca_certificate_provider_instance", "system_root_certs",
			"require_signed_certificate_timestamp", "crl", "custom_validator_config", "only_verify_leaf_cert_crl", "max_verify_depth", "allow_expired_certificate",
		})
	if m.GetTrustChainVerification() != tlsv3.CertificateValidationContext_VERIFY_TRUST_CHAIN {
		p.field("trust_chain_verification").reject("%v is not supported", m.GetTrustChainVerification())
	}
	out.TrustedCA = p.field("trusted_ca").readDataSource(m.GetTrustedCa())
	if d := m.GetTrustedCa(); d != nil && isEmptySource(d) {
		p.field("trusted_ca").reject("is empty: peer certificates would not be verified")
	}
	if out.TrustedCA.Text != "" {
		p.field("trusted_ca").checkCertificate(&credential.Context{TrustedCA: credential.PEM(out.TrustedCA)})
	}
	p.readPins(m, out)
	for i, s := range m.GetMatchTypedSubjectAltNames() {
		at := p.field("match_typed_subject_alt_names").index(i)
		at.checkFields(s, []string{"san_type", "matcher"}, []string{"oid"})
		switch s.GetSanType() {
		case tlsv3.SubjectAltNameMatcher_DNS:
			out.MatchSANs = append(out.MatchSANs, at.field("matcher").readSANMatchers(s.GetMatcher(), config.SANTypeDNS)...)
		case tlsv3.SubjectAltNameMatcher_URI:
			out.MatchSANs = append(out.MatchSANs, at.field("matcher").readSANMatchers(s.GetMatcher(), config.SANTypeURI)...)
		case tlsv3.SubjectAltNameMatcher_IP_ADDRESS:
			out.MatchSANs = append(out.MatchSANs, at.field("matcher").readSANMatchers(s.GetMatcher(), config.SANTypeIP)...)
		case tlsv3.SubjectAltNameMatcher_EMAIL:
			out.MatchSANs = append(out.MatchSANs, at.field("matcher").readSANMatchers(s.GetMatcher(), config.SANTypeEmail)...)
		default:
			at.field("san_type").reject("%v is not supported", s.GetSanType())
		}
	}
	for i, s := range m.GetMatchSubjectAltNames() {
		at := p.field("match_subject_alt_names").index(i)
		out.MatchSANs = append(out.MatchSANs, at.readSANMatchers(s, config.SANTypeDNS, config.SANTypeURI, config.SANTypeIP, config.SANTypeEmail)...)
	}
}

// readPins reads the digests of certificates and public keys, as Envoy does: those of certificates in
// hexadecimal digits with optional colons, those of public keys in base64.
func (p fieldReader) readPins(m *tlsv3.CertificateValidationContext, out *config.TLS) {
	for i, text := range m.GetVerifyCertificateHash() {
		digest, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
		if err != nil || len(digest) != sha256.Size {
			p.field("verify_certificate_hash").index(i).reject("%q is not a SHA-256 digest in hexadecimal digits", text)
			continue
		}
		out.CertificateHashes = append(out.CertificateHashes, [sha256.Size]byte(digest))
	}
	for i, text := range m.GetVerifyCertificateSpki() {
		digest, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(digest) != sha256.Size {
			p.field("verify_certificate_spki").index(i).reject("%q is not a SHA-256 digest in base64", text)
			continue
		}
		out.PublicKeyHashes = append(out.PublicKeyHashes, [sha256.Size]byte(digest))
	}
}

// checkCertificate rejects certificates and keys that no handshake can use. The reason never
// contains their content.
func (p fieldReader) checkCertificate(c *credential.Context) {
	if err := c.Check(false, nil); err != nil {
		p.reject("%v", err)
	}
}

// readSANMatchers returns one matcher for each of types, or nil if m is rejected.
func (p fieldReader) readSANMatchers(m *matcherv3.StringMatcher, types ...config.SANType) (out []config.SANMatcher) {
	var name config.ValueMatch
	if !p.readStringMatcher(m, &name) {
		return nil
	}
	if name.Text == "" {
		p.reject("is empty: it would match every name")
		return nil
	}
	for _, sanType := range types {
		out = append(out, config.SANMatcher{Type: sanType, Name: name})
	}
	return out
}

// isEmptySource reports whether d is absent or empty. It returns false for an environment variable,
// which readDataSource rejects.
func isEmptySource(d *corev3.DataSource) bool {
	_, isEnv := d.GetSpecifier().(*corev3.DataSource_EnvironmentVariable)
	return !isEnv && d.GetFilename() == "" && len(d.GetInlineBytes()) == 0 && d.GetInlineString() == ""
}

func (p fieldReader) readDataSource(d *corev3.DataSource) config.PEM {
	switch s := d.GetSpecifier().(type) {
	case nil:
		return config.PEM{}
	case *corev3.DataSource_Filename:
		return config.PEM{Path: s.Filename}
	case *corev3.DataSource_InlineBytes:
		return config.PEM{Text: string(s.InlineBytes)}
	case *corev3.DataSource_InlineString:
		return config.PEM{Text: s.InlineString}
	default:
		p.rejectOneof(d, "specifier", "filename", "inline_string", "inline_bytes")
		return config.PEM{}
	}
}
