package cases

import (
	"crypto/tls"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/certs"
	"github.com/weft-proxy/weft/test/envoy/client"
)

// tls adds the groups about TLS on both sides of the proxy.
func (s *set) tls() {
	s.tlsSessions()
	s.tlsVersions()
	s.clientCertificates()
	s.tlsChains()
	s.tlsFacts()
	s.upstreamTLS()
}

// secure begins a TLS session with a server name and protocols.
func secure(serverName string, protocols ...string) option {
	return func(c *Case) { c.TLS = &client.TLS{ServerName: serverName, ALPN: protocols} }
}

// presents adds a client certificate to a TLS session.
func presents(certificate string) option { return func(c *Case) { c.TLS.Certificate = certificate } }

// upTo limits the version of a TLS session.
func upTo(version uint16) option { return func(c *Case) { c.TLS.MaxVersion = version } }

// tlsInspector is a listener filter.
const tlsInspector = `
listener_filters:
- name: envoy.filters.listener.tls_inspector
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}`

// keyPair is the value of tls_certificates for certificates.
func keyPair(names ...string) string {
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, "{certificate_chain: {filename: $certs/"+name+".pem}, private_key: {filename: $certs/"+name+".key}}")
	}
	return "[" + strings.Join(pairs, ", ") + "]"
}

// tlsChain is a filter chain with a condition. common has fields of common_tls_context, and context
// has further fields of DownstreamTlsContext.
func tlsChain(match, common, context string) string {
	return "- filter_chain_match: {" + match + "}\n" +
		"  transport_socket:\n" +
		"    name: envoy.transport_sockets.tls\n" +
		"    typed_config:\n" +
		"      \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n" +
		indent("      ", context) +
		"      common_tls_context:\n" + indent("        ", common)
}

const (
	certificateA = "tls_certificates: CERT\n"
	trustCA      = "validation_context: {trusted_ca: {filename: $certs/ca.pem}}\n"
	bothHTTP     = "alpn_protocols: [h2, http/1.1]\n"
)

// serverA is a common_tls_context with the certificate of a.test.
func serverA(fields ...string) string {
	return strings.Replace(certificateA, "CERT", keyPair(certs.ServerA), 1) + strings.Join(fields, "")
}

func (s *set) tlsSessions() {
	const feature = "tls.session"
	for _, alpn := range []string{"", bothHTTP, "alpn_protocols: [http/1.1]\n", "alpn_protocols: [h2]\n"} {
		g := s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: tlsChain("", serverA(alpn), "")})
		for _, protocols := range [][]string{nil, {"http/1.1"}, {"h2", "http/1.1"}, {"http/1.1", "h2"}, {"other"}, {"other", "http/1.1"}} {
			g.get("/", secure("a.test", protocols...), labelf("%s client %q", alpn, protocols), timeout(2*time.Second))
		}
		g.h2(secure("a.test", "h2"), scheme("https"), label(alpn+" h2"), timeout(2*time.Second))
		g.h2(secure("a.test"), scheme("https"), label(alpn+" h2 without ALPN"), timeout(2*time.Second))
		g.get("/", secure(""), label(alpn+" without a server name"))
		g.get("/", secure("other.test"), label(alpn+" another server name"))
		g.raw(plainRequest, label(alpn+" no TLS"), timeout(time.Second))
		g.get("/", secure("a.test"), repeat(2), label(alpn+" twice"))
	}
	g := s.add(Group{Feature: feature, HCM: "use_remote_address: true", FilterChains: tlsChain("", serverA(), ""), Routes: `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_add: [{header: {key: x-scheme, value: '%REQ(:scheme)%'}}]`})
	g.get("/", secure("a.test"), label("scheme of TLS"))
	g.get("/", secure("a.test"), field("X-Forwarded-Proto", "http"), label("scheme of TLS with X-Forwarded-Proto"))
	g.h2(secure("a.test", "h2"), scheme("http"), label("scheme of TLS in h2"))
	g = s.add(Group{Feature: feature, FilterChains: tlsChain("", serverA(), ""), HostFields: "require_tls: ALL"})
	g.get("/", secure("a.test"), label("require_tls"))
	g = s.add(Group{Feature: feature, FilterChains: tlsChain("", serverA(), ""), Routes: `
- {match: {prefix: /}, redirect: {host_redirect: b.test}}`})
	g.get("/", secure("a.test"), label("redirect"))
	g.get("/", secure("a.test"), host("a.test:443"), label("redirect with a port"))
}

func (s *set) tlsVersions() {
	versions := []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13}
	for _, params := range []string{
		"",
		"tls_params: {tls_minimum_protocol_version: TLSv1_2}\n",
		"tls_params: {tls_minimum_protocol_version: TLSv1_3}\n",
		"tls_params: {tls_maximum_protocol_version: TLSv1_2}\n",
		"tls_params: {tls_minimum_protocol_version: TLSv1_0}\n",
		"tls_params: {tls_maximum_protocol_version: TLSv1_2, cipher_suites: [ECDHE-ECDSA-AES128-GCM-SHA256]}\n",
		"tls_params: {tls_maximum_protocol_version: TLSv1_2, cipher_suites: [ECDHE-RSA-AES128-GCM-SHA256]}\n",
		"tls_params: {ecdh_curves: [P-256]}\n",
	} {
		g := s.add(Group{Feature: "tls.version", FilterChains: tlsChain("", serverA(params), "")})
		for _, version := range versions {
			g.get("/", secure("a.test"), upTo(version), labelf("%s %s", params, tls.VersionName(version)))
		}
	}
}

func (s *set) clientCertificates() {
	const matchURI = "validation_context: {trusted_ca: {filename: $certs/ca.pem}, match_typed_subject_alt_names: [{san_type: URI, matcher: {%s}}]}\n"
	for _, v := range []struct{ name, common, context string }{
		{"not requested", "", ""},
		{"required without a CA", "", "require_client_certificate: true"},
		{"optional", trustCA, ""},
		{"required", trustCA, "require_client_certificate: true"},
		{"required with a URI", strings.Replace(matchURI, "%s", "exact: 'spiffe://test/client'", 1), "require_client_certificate: true"},
		{"required with another URI", strings.Replace(matchURI, "%s", "exact: 'spiffe://test/other'", 1), "require_client_certificate: true"},
		{"required with a URI prefix", strings.Replace(matchURI, "%s", "prefix: 'spiffe://test/'", 1), "require_client_certificate: true"},
		{"optional with another URI", strings.Replace(matchURI, "%s", "exact: 'spiffe://test/other'", 1), ""},
		{"accept untrusted", strings.Replace(trustCA, "}}", "}, trust_chain_verification: ACCEPT_UNTRUSTED}", 1), "require_client_certificate: true"},
		{"allow expired", strings.Replace(trustCA, "}}", "}, allow_expired_certificate: true}", 1), "require_client_certificate: true"},
		{"another CA", strings.Replace(trustCA, "ca.pem", "other-ca.pem", 1), "require_client_certificate: true"},
	} {
		g := s.add(Group{Feature: "tls.client_certificate", FilterChains: tlsChain("", serverA(v.common), v.context), HCM: `
forward_client_cert_details: SANITIZE_SET
set_current_client_cert_details: {uri: true, dns: true, subject: true}`})
		for _, certificate := range []string{"", certs.Client, certs.Expired, certs.Other} {
			g.get("/", secure("a.test"), presents(certificate), labelf("%s: %q", v.name, certificate))
			g.get("/", secure("a.test"), presents(certificate), upTo(tls.VersionTLS12), labelf("%s with TLS 1.2: %q", v.name, certificate))
		}
	}
}

// tlsChains adds listeners that choose a filter chain.
func (s *set) tlsChains() {
	const feature = "tls.chain"
	serverB := func(fields ...string) string {
		return strings.Replace(certificateA, "CERT", keyPair(certs.ServerB), 1) + strings.Join(fields, "")
	}
	ask := func(g *Group) {
		for _, name := range []string{"a.test", "A.test", "b.test", "x.b.test", "x.y.b.test", "other.test", ""} {
			g.get("/", secure(name), labelf("server name %q", name))
			g.get("/", secure(name, "h2"), labelf("server name %q with h2", name), timeout(time.Second))
		}
		g.raw(plainRequest, label("no TLS"), timeout(time.Second))
	}
	ask(s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: tlsChain("server_names: [a.test]", serverA(), "") +
		tlsChain("server_names: [b.test, '*.b.test']", serverB(), "")}))
	ask(s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: tlsChain("server_names: [a.test]", serverA(bothHTTP), "") +
		tlsChain("", serverB(bothHTTP), "")}))
	ask(s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: tlsChain("application_protocols: [h2]", serverA(bothHTTP), "") +
		tlsChain("transport_protocol: tls", serverB(bothHTTP), "") + "- filter_chain_match: {transport_protocol: raw_buffer}\n"}))
	ask(s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: strings.Replace(tlsChain("", serverA(), ""), keyPair(certs.ServerA), keyPair(certs.ServerA, certs.ServerB), 1)}))
	ask(s.add(Group{Feature: feature, Listener: tlsInspector, FilterChains: tlsChain("source_prefix_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]", serverA(), "") +
		tlsChain("source_prefix_ranges: [{address_prefix: 127.0.0.0, prefix_len: 8}]", serverB(), "")}))
	ask(s.add(Group{Feature: feature, Listener: tlsInspector + "\ndefault_filter_chain:\n" + defaultChain, FilterChains: tlsChain("server_names: [a.test]", serverA(), "")}))
}

// defaultChain is a filter chain that responds to every connection.
const defaultChain = `
  filters:
  - name: envoy.filters.network.direct_response
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config
      response: {inline_string: "HTTP/1.1 299 Default\r\ncontent-length: 0\r\n\r\n"}`

// tlsFacts adds what headers say about a TLS session.
func (s *set) tlsFacts() {
	for _, format := range []string{
		"%DOWNSTREAM_TLS_VERSION%", "%DOWNSTREAM_TLS_CIPHER%", "%DOWNSTREAM_PEER_SUBJECT%", "%DOWNSTREAM_PEER_ISSUER%", "%DOWNSTREAM_PEER_SERIAL%",
		"%DOWNSTREAM_PEER_URI_SAN%", "%DOWNSTREAM_PEER_DNS_SAN%", "%DOWNSTREAM_PEER_FINGERPRINT_256%", "%DOWNSTREAM_PEER_FINGERPRINT_1%",
		"%DOWNSTREAM_LOCAL_SUBJECT%", "%DOWNSTREAM_LOCAL_URI_SAN%", "%DOWNSTREAM_LOCAL_DNS_SAN%", "%REQUESTED_SERVER_NAME%",
		"%DOWNSTREAM_PEER_CERT_V_START%", "%DOWNSTREAM_PEER_CERT_V_END(%Y)%", "%DOWNSTREAM_PEER_CERT%", "%DOWNSTREAM_TLS_SESSION_ID%",
	} {
		g := s.add(Group{Feature: "tls.facts", Listener: tlsInspector, FilterChains: tlsChain("", serverA(trustCA), ""), Routes: "- match: {prefix: /}\n  route: {cluster: o1}\n" +
			"  request_headers_to_add: [{header: {key: x-f, value: '" + format + "'}}]\n"})
		g.get("/", secure("a.test"), presents(certs.Client), label(format))
		if !strings.Contains(format, "SESSION_ID") {
			g.get("/", secure("a.test"), label(format+" without a certificate"))
		}
	}
	for _, details := range []string{"{}", "{subject: true}", "{cert: true}", "{chain: true}", "{dns: true}", "{uri: true}", "{subject: true, dns: true, uri: true, cert: true}"} {
		for _, mode := range []string{"SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"} {
			g := s.add(Group{Feature: "tls.xfcc", FilterChains: tlsChain("", serverA(trustCA), ""), HCM: "forward_client_cert_details: " + mode +
				"\nset_current_client_cert_details: " + details})
			xfcc := field("x-forwarded-client-cert", "By=spiffe://x;Hash=1")
			g.get("/", secure("a.test"), presents(certs.Client), xfcc, label(mode+" "+details))
			g.get("/", secure("a.test"), xfcc, label(mode+" without a certificate "+details))
		}
	}
}

// upstreamTLS adds clusters with TLS.
func (s *set) upstreamTLS() {
	socket := func(context string) string {
		return "  transport_socket:\n    name: envoy.transport_sockets.tls\n    typed_config:\n" +
			"      \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n" + indent("      ", context)
	}
	options := func(fields string) string {
		return "  typed_extension_protocol_options:\n    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n" +
			"      \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n" + indent("      ", fields)
	}
	const http1 = "explicit_http_config: {http_protocol_options: {}}\n"
	const auto = "auto_config: {http_protocol_options: {}, http2_protocol_options: {}}\n"
	const trusted = "common_tls_context: {validation_context: {trusted_ca: {filename: $certs/ca.pem}}}\n"
	san := func(kind, name string) string {
		return "common_tls_context: {validation_context: {trusted_ca: {filename: $certs/ca.pem}, match_typed_subject_alt_names: [{san_type: " + kind + ", matcher: {exact: " + name + "}}]}}\n"
	}
	for i, v := range []struct{ origin, context, options string }{
		{"s1", "", http1},
		{"s1", "sni: origin.test", http1},
		{"s1", "sni: origin.test\n" + trusted, http1},
		{"s1", "sni: origin.test\n" + strings.Replace(trusted, "ca.pem", "other-ca.pem", 1), http1},
		{"s1", san("DNS", "origin.test"), http1},
		{"s1", san("DNS", "a.wild.test"), http1},
		{"s1", san("DNS", "other.test"), http1},
		{"s1", san("URI", "origin.test"), http1},
		{"s1", trusted, http1 + "upstream_http_protocol_options: {auto_sni: true}\n"},
		{"s1", trusted, http1 + "upstream_http_protocol_options: {auto_sni: true, auto_san_validation: true}\n"},
		{"s1", "common_tls_context: {tls_certificates: " + keyPair(certs.Client) + "}\n", http1},
		{"s1", "common_tls_context: {tls_params: {tls_maximum_protocol_version: TLSv1_2}}\n", http1},
		{"s1", "common_tls_context: {alpn_protocols: [http/1.1]}\n", http1},
		{"s2", "common_tls_context: {alpn_protocols: [h2]}\n", "explicit_http_config: {http2_protocol_options: {}}\n"},
		{"s2", "", "explicit_http_config: {http2_protocol_options: {}}\n"},
		{"s2", "", auto},
		{"s1", "", auto},
		{"s2", "common_tls_context: {alpn_protocols: [h2, http/1.1]}\n", http1},
		{"o1", "", http1}, // no TLS at the host
	} {
		name := "secure-" + strings.Repeat("i", i+1)
		g := s.add(Group{Feature: "tls.upstream", Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}", Clusters: cluster(name, socket(v.context)+options(v.options), v.origin)})
		text := v.origin + " " + v.context + v.options
		g.get("/", label(text))
		g.get("/", host("origin.test"), label(text+" host origin.test"))
		g.get("/", host("x.wild.test:8443"), label(text+" host x.wild.test"))
		g.h2(label(text + " h2"))
	}
}
