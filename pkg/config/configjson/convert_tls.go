package configjson

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
)

// tlsSide says whether a tls_context belongs to a listener or a cluster.
type tlsSide bool

const (
	listenerTLS tlsSide = true
	clusterTLS  tlsSide = false
)

// listenerTLSContexts converts tls_context or tls_context_set of a filter chain and skips disabled
// contexts.
func (r *reader) listenerTLSContexts(j *filterChainJSON) []*config.TLS {
	var out []*config.TLS
	if t := r.tls(j.TLSContext, listenerTLS); t != nil {
		out = append(out, t)
	}
	for i := range j.TLSContextSet {
		t := r.tls(&j.TLSContextSet[i], listenerTLS)
		if t == nil {
			continue
		}
		if j.TLSContext != nil && j.TLSContext.Status {
			r.report.Errorf(j.TLSContextSet[i].Node, "tls_context_set and tls_context are mutually exclusive")
			break
		}
		out = append(out, t)
	}
	if slices.ContainsFunc(out, func(t *config.TLS) bool { return !sameClientAuth(t, out[0]) }) {
		r.report.Warnf(j.Node.Get("tls_context_set"), "the contexts accept different clients: a client selects a context by SNI and can then request any host, so one context may accept a client that another rejects")
	}
	return out
}

// sameClientAuth reports whether a and b accept the same clients.
func sameClientAuth(a, b *config.TLS) bool {
	return a.ClientAuth == b.ClientAuth &&
		(a.ClientAuth == config.NoClientCert || a.TrustedCA == b.TrustedCA && slices.Equal(a.MatchSANs, b.MatchSANs))
}

// checkALPN warns of ALPN protocols that p does not support.
func (r *reader) checkALPN(j *filterChainJSON, p *config.Proxy) {
	if slices.Contains(p.Downstream, config.Auto) {
		return
	}
	contexts := []*tlsJSON{j.TLSContext}
	for i := range j.TLSContextSet {
		contexts = append(contexts, &j.TLSContextSet[i])
	}
	for _, t := range contexts {
		if t == nil || !t.Status {
			continue
		}
		for _, known := range []config.Protocol{config.HTTP1, config.HTTP2} {
			name := stream.ALPN(known)
			if slices.Contains(splitList(t.ALPN, ","), name) && !slices.Contains(p.Downstream, known) {
				r.report.Warnf(t.Node.Get("alpn"), "the ALPN protocol %s is not in downstream_protocol: clients that select it are not served", name)
			}
		}
	}
}

// clusterTLSContext converts the TLS settings of a cluster.
func (r *reader) clusterTLSContext(j *clusterJSON) *config.TLS {
	own := r.tls(j.TLS, clusterTLS)
	if !j.ManagerTLS {
		return own
	}
	at := j.Node.Get("cluster_manager_tls")
	switch {
	case own != nil:
		r.report.Errorf(at, "cluster_manager_tls and tls_context are mutually exclusive")
	case r.managerTLS == nil:
		r.report.Errorf(at, "cluster_manager has no enabled tls_context")
	}
	return r.managerTLS
}

// tls converts a tls_context; nil if it is absent or disabled.
func (r *reader) tls(j *tlsJSON, side tlsSide) *config.TLS {
	if j == nil || !j.Status {
		r.warnMissingStatus(j)
		return nil
	}
	t := &config.TLS{
		ServerName:  j.ServerName,
		Certificate: r.pem(j.CertChain), Key: r.pem(j.PrivateKey), TrustedCA: r.pem(j.CACert),
		InsecureSkipVerify: j.InsecureSkip,
		MinVersion:         tlsVersion(j.MinVersion), MaxVersion: tlsVersion(j.MaxVersion),
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
	before := r.report.Errors()
	r.cipherSuites(j, t)
	r.checkTLSVersions(j, t)
	for i := range j.Peers {
		r.readSANMatcher(&j.Peers[i], t)
	}
	r.warnIneffectiveTLS(j, side)
	if r.report.Errors() == before {
		r.checkCredentials(j, t, side)
	}
	return t
}

// warnMissingStatus warns of a tls_context that has settings but no status.
func (r *reader) warnMissingStatus(j *tlsJSON) {
	if j == nil || j.Node.Get("status").Exists() {
		return
	}
	for range j.Node.All() {
		r.report.Warnf(j.Node, "TLS is disabled: set \"status\" to true to enable it")
		return
	}
}

// pem converts a path or PEM text. A relative path refers to the working directory if the file
// exists there, else to the directory of the configuration.
func (r *reader) pem(text string) config.PEM {
	switch {
	case strings.TrimSpace(text) == "":
		return config.PEM{}
	case strings.Contains(text, "-----BEGIN "):
		return config.PEM{Text: text}
	case filepath.IsAbs(text):
		return config.PEM{Path: text}
	}
	beside := filepath.Join(filepath.Dir(r.file), text)
	if _, err := r.files.ReadFile(text); err != nil {
		if _, err := r.files.ReadFile(beside); err == nil {
			return config.PEM{Path: beside}
		}
	}
	return config.PEM{Path: text}
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

func tlsVersion(text string) config.TLSVersion {
	if text == "tls_auto" {
		return ""
	}
	return config.TLSVersion(text)
}

// cipherSuites converts cipher_suites and ecdh_curves.
func (r *reader) cipherSuites(j *tlsJSON, t *config.TLS) {
	at := j.Node.Get("cipher_suites")
	for _, name := range splitList(j.CipherSuites, ":") {
		_, safe, ok := credential.Cipher(name)
		switch {
		case !ok:
			r.report.Unknown(at, "cipher suite", name, slices.Collect(credential.CipherNames()))
			continue
		case !safe:
			r.report.Warnf(at, "the cipher suite %s is weak: it lacks forward secrecy or authenticated encryption", name)
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

// checkTLSVersions checks the versions against each other. The names of the versions sort in version order.
func (r *reader) checkTLSVersions(j *tlsJSON, t *config.TLS) {
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
	if at := j.Node.Get("cipher_suites"); at.Exists() && lowest == config.TLS13 {
		r.report.Warnf(at, "cipher_suites has no effect on TLS 1.3")
	}
}

// readSANMatcher converts one of match_typed_subject_alt_names.
func (r *reader) readSANMatcher(j *peerNameJSON, t *config.TLS) {
	m := &j.Matcher
	p := config.SANMatcher{
		Kind: config.SANType(j.Kind), Exact: m.Exact, Prefix: m.Prefix, Suffix: m.Suffix, Contains: m.Contains,
		Regex: m.Regex.Regex, IgnoreCase: m.IgnoreCase,
	}
	set := 0
	for _, text := range []string{p.Exact, p.Prefix, p.Suffix, p.Contains, p.Regex} {
		if text != "" {
			set++
		}
	}
	switch {
	case set != 1 && m.Node.Exists():
		r.report.Errorf(m.Node, "expected one of exact, prefix, suffix, contains and safe_regex")
	case p.Regex != "":
		r.checkRegex(m.Regex.Node, "regex", p.Regex)
		if m.IgnoreCase {
			r.report.Warnf(m.Node.Get("ignore_case"), "ignore_case has no effect on safe_regex: use (?i) in the expression")
		}
	}
	t.MatchSANs = append(t.MatchSANs, p)
}

// warnIneffectiveTLS warns of settings that have no effect on this side or without others.
func (r *reader) warnIneffectiveTLS(j *tlsJSON, side tlsSide) {
	keys, where := []string{"verify_client", "require_client_cert", "fall_back", "handshake_timeout"}, "on connections to hosts"
	if side == listenerTLS {
		keys, where = []string{"insecure_skip"}, "on connections from clients"
	}
	for _, key := range keys {
		if at := j.Node.Get(key); at.Exists() {
			r.report.Warnf(at, "%s has no effect %s", key, where)
		}
	}
	if side == clusterTLS && j.InsecureSkip {
		r.report.Warnf(j.Node.Get("insecure_skip"), "insecure_skip disables the verification of the hosts' certificates: any server is accepted")
	}
	if at := j.Node.Get("ca_cert"); side == listenerTLS && at.Exists() && !j.RequireClientCert && !j.VerifyClient {
		r.report.Warnf(at, "ca_cert has no effect without require_client_cert or verify_client")
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

// checkCredentials loads the files of t to report unusable ones.
func (r *reader) checkCredentials(j *tlsJSON, t *config.TLS, side tlsSide) {
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

// readPlaintextInspector converts the inspector key of a listener.
func (r *reader) readPlaintextInspector(j *listenerJSON, l *config.Listener) {
	if !j.Inspector {
		return
	}
	at := j.Node.Get("inspector")
	secured, required := false, false
	for c := range l.Chains() {
		c.AllowPlaintext = len(c.TLS) > 0
		secured = secured || c.AllowPlaintext
		required = required || slices.ContainsFunc(c.TLS, func(t *config.TLS) bool { return t.ClientAuth == config.RequireAndVerifyClientCert })
	}
	switch {
	case !secured:
		r.report.Warnf(at, "inspector has no effect without a tls_context")
	case required:
		r.report.Warnf(at, "plaintext clients are accepted without the certificate that tls_context requires")
	}
}
