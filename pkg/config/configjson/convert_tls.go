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

// listenerContexts converts tls_context or tls_context_set of a filter chain and skips disabled
// contexts.
func (r *reader) listenerContexts(j *filterChainJSON) []*config.TLS {
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
	if slices.ContainsFunc(out, func(t *config.TLS) bool { return !sameCallers(t, out[0]) }) {
		r.report.Warnf(j.Node.Get("tls_context_set"), "the contexts accept different clients: a client selects a context by SNI and can then request any host, so one context may accept a client that another rejects")
	}
	return out
}

// sameCallers reports whether a and b accept the same clients.
func sameCallers(a, b *config.TLS) bool {
	return a.ClientCertificate == b.ClientCertificate &&
		(a.ClientCertificate == config.NoClientCertificate || a.Authorities == b.Authorities && slices.Equal(a.Peers, b.Peers))
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
			if slices.Contains(split(t.ALPN, ","), name) && !slices.Contains(p.Downstream, known) {
				r.report.Warnf(t.Node.Get("alpn"), "the ALPN protocol %s is not in downstream_protocol: clients that select it are not served", name)
			}
		}
	}
}

// clusterContext converts the TLS settings of a cluster.
func (r *reader) clusterContext(j *clusterJSON) *config.TLS {
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
		r.isOff(j)
		return nil
	}
	t := &config.TLS{
		ServerName:  j.ServerName,
		Certificate: r.pem(j.CertChain), Key: r.pem(j.PrivateKey), Authorities: r.pem(j.CACert),
		SkipVerify: j.InsecureSkip,
		MinVersion: tlsVersion(j.MinVersion), MaxVersion: tlsVersion(j.MaxVersion),
		ALPN:             split(j.ALPN, ","),
		HandshakeTimeout: j.HandshakeTimeout,
		Fallback:         j.FallBack,
	}
	switch {
	case j.RequireClientCert:
		t.ClientCertificate = config.RequireClientCertificate
	case j.VerifyClient:
		t.ClientCertificate = config.VerifyClientCertificate
	}
	before := r.report.Errors()
	r.cipherSuites(j, t)
	r.versions(j, t)
	for i := range j.Peers {
		r.peerName(&j.Peers[i], t)
	}
	r.misplaced(j, side)
	if r.report.Errors() == before {
		r.checkCredentials(j, t, side)
	}
	return t
}

// isOff warns of a tls_context that has settings but no status.
func (r *reader) isOff(j *tlsJSON) {
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

// split splits a list and drops empty elements.
func split(text, separator string) []string {
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
	for _, name := range split(j.CipherSuites, ":") {
		_, safe, ok := credential.Cipher(name)
		switch {
		case !ok:
			r.report.Unknown(at, "cipher suite", name, slices.Collect(credential.CipherNames()))
			continue
		case !safe:
			r.report.Warnf(at, "the cipher suite %s is weak: it lacks forward secrecy or authenticated encryption", name)
		}
		t.Ciphers = append(t.Ciphers, name)
	}
	for _, name := range split(j.ECDHCurves, ":") {
		if _, ok := credential.Curve(name); !ok {
			r.report.Unknown(j.Node.Get("ecdh_curves"), "curve", name, credential.CurveNames())
			continue
		}
		t.Curves = append(t.Curves, name)
	}
}

// versions checks the versions against each other. The names of the versions sort in version order.
func (r *reader) versions(j *tlsJSON, t *config.TLS) {
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

// peerName converts one of match_typed_subject_alt_names.
func (r *reader) peerName(j *peerNameJSON, t *config.TLS) {
	m := &j.Matcher
	p := config.PeerName{
		Kind: config.NameKind(j.Kind), Exact: m.Exact, Prefix: m.Prefix, Suffix: m.Suffix, Contains: m.Contains,
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
	t.Peers = append(t.Peers, p)
}

// misplaced warns of settings that have no effect on this side or without others.
func (r *reader) misplaced(j *tlsJSON, side tlsSide) {
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

// readInspector converts the inspector key of a listener.
func (r *reader) readInspector(j *listenerJSON, l *config.Listener) {
	if !j.Inspector {
		return
	}
	at := j.Node.Get("inspector")
	secured, required := false, false
	for c := range l.Chains() {
		c.Inspector = len(c.TLS) > 0
		secured = secured || c.Inspector
		required = required || slices.ContainsFunc(c.TLS, func(t *config.TLS) bool { return t.ClientCertificate == config.RequireClientCertificate })
	}
	switch {
	case !secured:
		r.report.Warnf(at, "inspector has no effect without a tls_context")
	case required:
		r.report.Warnf(at, "plaintext clients are accepted without the certificate that tls_context requires")
	}
}
