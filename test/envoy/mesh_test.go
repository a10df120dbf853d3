package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/test/child"
	"github.com/weft-proxy/weft/test/ports"
)

// TestInboundOfMesh verifies that requests of an application pass through Envoy as the outbound
// sidecar and Weft as the inbound sidecar. Weft has a listener and a cluster like those of Istio:
// mutual TLS, chains selected by ALPN, and use_downstream_protocol_config.
func TestInboundOfMesh(t *testing.T) {
	program := envoyProgram(t)
	free, dir, authority := ports.Envoy(), t.TempDir(), testpki.New(t)
	application := serveApplication(t)
	inbound, outbound := freePort(t, free), freePort(t, free)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	credentials := func(name string) string {
		leaf := authority.Issue(testpki.Spec{URIs: []string{"spiffe://cluster.local/ns/default/sa/" + name}})
		return fmt.Sprintf(`tls_certificates: [{certificate_chain: {filename: %q}, private_key: {filename: %q}}], validation_context: {trusted_ca: {filename: %q}`,
			write(name+".pem", string(leaf.Cert)), write(name+".key", string(leaf.Key)), write("ca.pem", string(authority.PEM)))
	}
	weftFile := write("weft.yaml", inboundBootstrap(inbound, application, credentials("server")))
	envoyFile := write("envoy.yaml", outboundBootstrap(outbound, inbound, credentials("client")))
	startProxy(t, "weft", inbound, exec.Command(buildWeft(t), "start", "-c", weftFile))
	startProxy(t, "envoy", outbound, exec.Command(program, "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", envoyFile))

	for _, test := range []struct {
		name, contentType string
		http2             bool
		wantProtocol      string
		wantTrailer       string
	}{
		{"HTTP/1.1", "text/plain", false, "HTTP/1.1", ""},
		{"gRPC", "application/grpc", true, "HTTP/2.0", "0"},
	} {
		for range 2 { // the second request reuses the connections
			got := send(t, outbound, test.http2, test.contentType)
			want := applicationReport{test.wantProtocol, test.contentType, "By=spiffe://cluster.local/ns/default/sa/server", "hello", test.wantTrailer}
			if got != want {
				t.Errorf("%s: the application and the client received %+v, want %+v", test.name, got, want)
			}
		}
	}
	if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(inbound))); err != nil { //nolint:noctx // a loopback port
		t.Error(err)
	} else {
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("a client without TLS received %d bytes, want the end of the connection", n)
		}
	}
}

// applicationReport says what the application received, and which grpc-status the client received.
type applicationReport struct{ Protocol, ContentType, ClientCert, Body, GRPCStatus string }

// serveApplication starts an application that speaks HTTP/1.1 and HTTP/2 without TLS, and returns its
// port. Its responses contain an applicationReport. Those to gRPC requests have a trailer.
func serveApplication(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a loopback port
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		cert, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Client-Cert"), ";")
		report, _ := json.Marshal(applicationReport{r.Proto, r.Header.Get("Content-Type"), cert, string(body), ""})
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		if r.Header.Get("Content-Type") == "application/grpc" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
		_, _ = w.Write(report)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// send sends a request to a port and returns the report in the response.
func send(t *testing.T, port int, http2 bool, contentType string) (report applicationReport) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://127.0.0.1:"+strconv.Itoa(port)+"/echo.Service/Call", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Te", "trailers")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &report); err != nil {
		t.Fatalf("response %d %q: %v", response.StatusCode, body, err)
	}
	report.GRPCStatus = response.Trailer.Get("Grpc-Status")
	return report
}

// startProxy starts a proxy and waits until it listens on a port.
func startProxy(t *testing.T, name string, port int, cmd *exec.Cmd) {
	t.Helper()
	child.Start(t, name, cmd).Await(t, time.Minute, 20*time.Millisecond, func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // a loopback port
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

// hcmOf returns an HTTP connection manager with routes, and with further fields.
func hcmOf(routes, fields string) string {
	return `{name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: m, ` + fields +
		`route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [` + routes + `]}]}, ` +
		`http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}`
}

// meshCluster returns a cluster with one host, and with HttpProtocolOptions and further fields.
func meshCluster(name string, port int, options, fields string) string {
	return fmt.Sprintf(`
  - name: %s
    connect_timeout: 5s
    load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, %s}
%s`, name, port, options, fields)
}

// inboundBootstrap returns the file of the sidecar in front of an application. credentials is the
// beginning of a CommonTlsContext.
func inboundBootstrap(port, application int, credentials string) string {
	return fmt.Sprintf(`
static_resources:
  listeners:
  - name: virtualInbound
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    listener_filters: [{name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}]
    filter_chains:
    - filter_chain_match: {transport_protocol: tls, application_protocols: [istio, istio-http/1.0, istio-http/1.1, istio-h2]}
      transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext,
        require_client_certificate: true, common_tls_context: {alpn_protocols: [h2, http/1.1], %s}}}}
      filters: [%s]
  clusters:%s`, port, credentials,
		hcmOf("{match: {prefix: /}, route: {cluster: inbound}}", "forward_client_cert_details: SANITIZE_SET, set_current_client_cert_details: {uri: true}, "),
		meshCluster("inbound", application, "use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}", ""))
}

// outboundBootstrap returns the file of the sidecar of a client. Its clusters offer the ALPN
// protocols that Istio's sidecars offer.
func outboundBootstrap(port, inbound int, credentials string) string {
	socket := func(alpn string) string {
		return `    transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: outbound_.80_._.app, common_tls_context: {alpn_protocols: [` +
			alpn + "], " + credentials + `, match_typed_subject_alt_names: [{san_type: URI, matcher: {exact: "spiffe://cluster.local/ns/default/sa/server"}}]}}}}`
	}
	return fmt.Sprintf(`
static_resources:
  listeners:
  - name: outbound
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains: [{filters: [%s]}]
  clusters:%s%s`, port,
		hcmOf(`{match: {prefix: /, headers: [{name: content-type, string_match: {exact: application/grpc}}]}, route: {cluster: h2}}, {match: {prefix: /}, route: {cluster: http1}}`, ""),
		meshCluster("h2", inbound, "explicit_http_config: {http2_protocol_options: {}}", socket("istio-h2, istio, h2")),
		meshCluster("http1", inbound, "explicit_http_config: {http_protocol_options: {}}", socket("istio-http/1.1, istio, http/1.1")))
}
