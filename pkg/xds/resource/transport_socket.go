package resource

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readTransportSockets reads the transport sockets of a cluster. The first one that matches a host
// applies; transport_socket comes last and matches every host.
func (p fieldReader) readTransportSockets(m *clusterv3.Cluster, c *Cluster) {
	for i, s := range m.GetTransportSocketMatches() {
		at := p.field("transport_socket_matches").index(i).field("transport_socket")
		if socket, ok := at.readUpstreamSocket(s.GetTransportSocket()); ok {
			socket.Match = labels(s.GetMatch())
			at.addTransportSocket(socket, c)
		}
	}
	if s := m.GetTransportSocket(); s != nil {
		if socket, ok := p.field("transport_socket").readUpstreamSocket(s); ok {
			p.field("transport_socket").addTransportSocket(socket, c)
		}
	}
	if len(c.TransportSocketMatches) == 0 || c.TransportSocketMatches[0].ProxyProtocol == 0 {
		return
	}
	if m.GetTransportSocket() == nil {
		p.reject("transport_socket is missing: hosts that match no transport socket would get no PROXY header")
	}
	// As in Envoy, clients share no connections, because the header has the address of one client.
	c.Config.ProxyProtocol, c.Config.Pool.Mode = c.TransportSocketMatches[0].ProxyProtocol, config.Bind
}

// addTransportSocket adds a transport socket to c, unless its PROXY header differs from the one of
// the others: the hosts of a cluster all get the same.
func (p fieldReader) addTransportSocket(s TransportSocketMatch, c *Cluster) {
	if others := c.TransportSocketMatches; len(others) > 0 && others[0].ProxyProtocol != s.ProxyProtocol {
		p.reject("the version of the PROXY protocol must be the same in all transport sockets of a cluster")
		return
	}
	c.TransportSocketMatches = append(c.TransportSocketMatches, s)
}

// readUpstreamSocket reads the transport socket of upstream connections. ok is false if the socket
// is rejected.
func (p fieldReader) readUpstreamSocket(s *corev3.TransportSocket) (out TransportSocketMatch, ok bool) {
	m := &proxyprotocolv3.ProxyProtocolUpstreamTransport{}
	if !isType(s.GetTypedConfig(), m) {
		out.TLS, ok = p.readUpstreamTLS(s)
		return out, ok
	}
	at := p.field("typed_config")
	if !at.unpack(s.GetTypedConfig(), m) {
		return out, false
	}
	at.checkFields(m, []string{"config", "transport_socket"}, []string{"allow_unspecified_address", "tlv_as_pool_key"})
	if m.GetTransportSocket() == nil {
		at.field("transport_socket").reject("is missing")
		return out, false
	}
	header := at.field("config")
	header.checkOptionalFields(m.GetConfig(), []string{"added_tlvs"}, "version", "pass_through_tlvs")
	if tlvs := m.GetConfig().GetPassThroughTlvs(); tlvs != nil && (tlvs.GetMatchType() == corev3.ProxyProtocolPassThroughTLVs_INCLUDE_ALL || len(tlvs.GetTlvType()) > 0) {
		header.field("pass_through_tlvs").rejectUnsupported()
	}
	out.ProxyProtocol = 1
	if m.GetConfig().GetVersion() == corev3.ProxyProtocolConfig_V2 {
		out.ProxyProtocol = 2
	}
	out.TLS, ok = at.field("transport_socket").readUpstreamTLS(m.GetTransportSocket())
	return out, ok
}

// readUpstreamTLS reads the transport socket of upstream connections, without a PROXY header; t is
// nil for plaintext. ok is false if the socket is rejected.
func (p fieldReader) readUpstreamTLS(s *corev3.TransportSocket) (t *TLS, ok bool) {
	packed := s.GetTypedConfig()
	at := p.field("typed_config")
	m := &tlsv3.UpstreamTlsContext{}
	switch {
	case packed == nil && s.GetName() == "envoy.transport_sockets.raw_buffer", isType(packed, &rawv3.RawBuffer{}):
		return nil, true
	case !isType(packed, m):
		p.reject("%s %s is not supported", s.GetName(), packed.GetTypeUrl())
		return nil, false
	case !at.unpack(packed, m):
		return nil, false
	}
	at.checkFields(m, []string{"common_tls_context", "sni", "auto_host_sni", "auto_sni_san_validation", "max_session_keys"}, nil)
	if m.GetAllowRenegotiation() {
		at.field("allow_renegotiation").rejectUnsupported()
	}
	t = at.field("common_tls_context").readCommonTLS(m.GetCommonTlsContext())
	out := t.Config
	out.ServerName, out.SNI, out.VerifySNI = m.GetSni(), config.SNIServerName, m.GetAutoSniSanValidation()
	if m.GetAutoHostSni() {
		out.SNI = config.SNIHostname
	}
	switch keys := m.GetMaxSessionKeys(); {
	case keys == nil:
	case keys.GetValue() == 0:
		out.NoSessionResumption = true
	default: // crypto/tls has no limit for the sessions of one host
		at.field("max_session_keys").ignore()
	}
	hasCA := t.TrustedCA.Name != "" || out.TrustedCA != (config.PEM{})
	if out.VerifySNI && !hasCA {
		at.field("auto_sni_san_validation").reject("requires a validation context with a trusted_ca")
	}
	// Envoy verifies peer certificates only with a trusted_ca, and their names only with SAN
	// matchers.
	out.InsecureSkipVerify = !hasCA
	out.SkipHostnameCheck = hasCA && len(out.MatchSANs) == 0
	return t, true
}

// checkALPN rejects a cluster whose hosts choose the protocol by ALPN if connections to some of them
// do not use TLS.
func (p fieldReader) checkALPN(m *clusterv3.Cluster, c *Cluster) {
	if c.Config.Protocol != config.HTTPByALPN {
		return
	}
	plaintext := m.GetTransportSocket() == nil
	for _, s := range c.TransportSocketMatches {
		plaintext = plaintext || s.TLS == nil
	}
	if plaintext && len(p.report.reasons) == 0 { // a rejected socket may use TLS
		p.reject("auto_config requires that all transport sockets use TLS")
	}
}
