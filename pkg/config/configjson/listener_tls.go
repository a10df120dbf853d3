package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/stream"
)

// readTLSContexts converts the key "tls_context" or "tls_context_set" of a filter chain. It skips
// disabled contexts.
func (r *listenerReader) readTLSContexts(j *filterChainJSON) []*config.TLS {
	var out []*config.TLS
	if t := r.tls.readContext(j.TLSContext, listenerTLS); t != nil {
		out = append(out, t)
	}
	for i := range j.TLSContextSet {
		t := r.tls.readContext(&j.TLSContextSet[i], listenerTLS)
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

// checkALPN warns about ALPN protocols that p does not support.
func (r *listenerReader) checkALPN(j *filterChainJSON, p *config.Proxy) {
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
		for _, proto := range []config.Protocol{config.HTTP1, config.HTTP2} {
			name := stream.ALPN(proto)
			if slices.Contains(splitList(t.ALPN, ","), name) && !slices.Contains(p.Downstream, proto) {
				r.report.Warnf(t.Node.Get("alpn"), "the ALPN protocol %s is not in downstream_protocol: clients that select it are not served", name)
			}
		}
	}
}

// readPlaintextInspector converts the key "inspector" of a listener.
func (r *listenerReader) readPlaintextInspector(j *listenerJSON, l *config.Listener) {
	if !j.Inspector {
		return
	}
	node := j.Node.Get("inspector")
	hasTLS, requiresCert := false, false
	for c := range l.Chains() {
		c.AllowPlaintext = len(c.TLS) > 0
		hasTLS = hasTLS || c.AllowPlaintext
		requiresCert = requiresCert || slices.ContainsFunc(c.TLS, func(t *config.TLS) bool { return t.ClientAuth == config.RequireAndVerifyClientCert })
	}
	switch {
	case !hasTLS:
		r.report.Warnf(node, "inspector has no effect without a tls_context")
	case requiresCert:
		r.report.Warnf(node, "plaintext clients are accepted without the certificate that tls_context requires")
	}
}
