package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// certDir is a directory with certificates and keys of one authority.
type certDir struct {
	t   *testing.T
	dir string
	ca  *testpki.Authority
}

func newCertDir(t *testing.T) *certDir {
	t.Helper()
	d := &certDir{t: t, dir: t.TempDir(), ca: testpki.New(t)}
	d.ca.Write(d.dir)
	return d
}

// issue writes NAME.pem and NAME.key.
func (d *certDir) issue(name string, s testpki.Spec) testpki.Leaf {
	d.t.Helper()
	leaf := d.ca.Issue(s)
	leaf.Write(d.t, d.dir, name)
	return leaf
}

func (d *certDir) path(name string) string { return filepath.Join(d.dir, name) }

// context returns a tls_context with the certificate of d called name.
func (d *certDir) context(name string, extra object) object {
	return object{
		"status": true, "ca_cert": d.path("ca.pem"), "cert_chain": d.path(name + ".pem"), "private_key": d.path(name + ".key"),
	}.with(extra)
}

// tlsListener returns a listener for every protocol with a tls_context.
func tlsListener(name, address string, context object, extra ...object) object {
	l := networkListener(name, address, object{"type": "proxy", "config": object{"downstream_protocol": "Auto", "router_config_name": name}}, extra...)
	l["filter_chains"].(list)[0].(object)["tls_context"] = context
	return l
}

// client returns a client that trusts the authority of d and prefers HTTP/2.
func (d *certDir) client(cert ...tls.Certificate) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: d.ca.Pool(), Certificates: cert}, ForceAttemptHTTP2: true,
	}
	d.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 4 * waitTimeout}
}

// TestMutualTLSCarriesEveryProtocol verifies HTTP/1.1, gRPC and Dubbo over mutual TLS. Clients send
// them in plaintext to one listener. Weft forwards them over mutual TLS to its second listener, and
// from there to the upstreams.
func TestMutualTLSCarriesEveryProtocol(t *testing.T) {
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{CommonName: "server", DNS: []string{"app.shop"}})
	certs.issue("client", testpki.Spec{CommonName: "client", URIs: []string{"spiffe://shop/ns/default/sa/front"}})
	dubbo := startProvider(t, "provider", nil)
	grpc := serveGRPC(t, "")
	web := startUpstream(t, respondWith("web"))
	front, back, log := freeAddress(), freeAddress(), certs.path("access.log")
	w := startWeft(t, setup{
		listeners: list{
			networkListener("front", front, object{"type": "proxy", "config": object{"downstream_protocol": "Auto", "router_config_name": "front"}}),
			tlsListener("back", back, certs.context("server", object{
				"require_client_cert":           true,
				"match_typed_subject_alt_names": list{object{"san_type": "URI", "matcher": object{"prefix": "spiffe://shop/ns/default/"}}},
			}), object{"access_logs": list{object{"log_path": log, "log_format": "%protocol% %scheme% %downstream_tls_version% %downstream_peer_uri_san% %requested_server_name%"}}}),
		},
		tables: list{
			routeTable("front", routeTo("/", "back")),
			routeTable("back", routeTo("/shop.Orders/", "grpc"), routeTo("/dubbo.Orders", "dubbo"), routeTo("/", "web")),
		},
		clusters: list{
			cluster("back", object{"tls_context": certs.context("client", object{"server_name": "app.shop"})}, back),
			cluster("dubbo", nil, dubbo.address), cluster("grpc", nil, grpc.address), cluster("web", nil, web.address),
		},
	}.config())
	for range 3 {
		if got := sendRequest(t, newClient(t), "POST", "http://"+front+"/", strings.Repeat("x", 100_000)); got.status != 200 || got.body != "web" {
			t.Errorf("HTTP/1.1: %d %q; want 200, \"web\"", got.status, got.body)
		}
		transport := &http.Transport{Protocols: httpProtocols("Http2")}
		h2 := &http.Client{Transport: transport, Timeout: waitTimeout}
		if got := callGRPC(t, h2, front, "/shop.Orders/Get"); got != "0" {
			t.Errorf("gRPC: status %q, want 0", got)
		}
		transport.CloseIdleConnections()
		if got := newConsumer(t, front).call(invocation{service: "dubbo.Orders", method: "get"}); got.text != "provider" {
			t.Errorf("Dubbo: %+v, want a response of the provider", got)
		}
	}
	if n := w.metric("weft_listener_tls_handshakes_total", "listener", "back", "result", "ok"); n < 3 || n > 6 {
		t.Errorf("%v handshakes for 9 requests of 3 protocols, want 3 to 6", n)
	}
	if n := w.metric("weft_cluster_tls_handshakes_total", "cluster", "back", "result", "ok"); n < 3 {
		t.Errorf("the cluster counts %v handshakes, want at least 3", n)
	}
	w.signal(os.Interrupt)
	w.awaitExit(waitTimeout)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Http1 https", "Http2", "dubbo"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the log has no line for %q:\n%s", want, text)
		}
	}
	if n := strings.Count(string(text), "TLSv1.3 spiffe://shop/ns/default/sa/front app.shop"); n != 9 {
		t.Errorf("%d of 9 lines have the certificate of the client:\n%s", n, text)
	}
}

func TestInvalidCertificatesAreRejected(t *testing.T) {
	certs, otherCerts := newCertDir(t), newCertDir(t)
	certs.issue("server", testpki.Spec{DNS: []string{"app.shop"}, IPs: []string{"127.0.0.1"}})
	valid := certs.issue("friend", testpki.Spec{URIs: []string{"spiffe://shop/a"}})
	other := certs.issue("other", testpki.Spec{URIs: []string{"spiffe://bank/a"}})
	untrusted := otherCerts.issue("stranger", testpki.Spec{URIs: []string{"spiffe://shop/a"}})
	front, plain := freeAddress(), freeAddress()
	clusters := list{}
	routes := []object{}
	for name, context := range map[string]object{
		"other-name":  {"status": true, "ca_cert": certs.path("ca.pem"), "server_name": "bank.example"},
		"untrusted":   {"status": true, "ca_cert": otherCerts.path("ca.pem")},
		"system-only": {"status": true},
	} {
		clusters = append(clusters, cluster(name, object{"tls_context": context}, front))
		routes = append(routes, routeTo("/"+name, name))
	}
	w := startWeft(t, setup{
		listeners: list{
			tlsListener("front", front, certs.context("server", object{
				"require_client_cert":           true,
				"match_typed_subject_alt_names": list{object{"san_type": "URI", "matcher": object{"safe_regex": object{"regex": "spiffe://shop/[ab]"}}}},
			})),
			httpListener("plain", plain),
		},
		tables:   list{routeTable("front", directRoute("/", 200, "accepted")), routeTable("plain", routes...)},
		clusters: clusters,
	}.config())
	for _, test := range []struct {
		name     string
		client   *http.Client
		accepted bool
		result   string
	}{
		{"valid certificate", certs.client(valid.TLS), true, "ok"},
		{"no certificate", certs.client(), false, "no_certificate"},
		{"other identity", certs.client(other.TLS), false, "wrong_peer"},
		{"other authority", clientWithCert(certs, untrusted.TLS), false, "untrusted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, err := tryRequest(t.Context(), test.client, "GET", "https://"+front+"/", "")
			if accepted := err == nil && resp.body == "accepted"; accepted != test.accepted {
				t.Errorf("response %+v, %v; want accepted: %v", resp, err, test.accepted)
			}
			eventually(t, "the handshake is counted as "+test.result, func() bool {
				return w.metric("weft_listener_tls_handshakes_total", "listener", "front", "result", test.result) >= 1
			})
		})
	}
	for _, name := range []string{"other-name", "untrusted", "system-only"} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+plain+"/"+name, ""); got.status != 502 {
			t.Errorf("host with %s: status %d, want 502", name, got.status)
		}
	}
	if log := w.stderr.String(); !strings.Contains(log, "TLS handshake failed") {
		t.Error("the log lacks the handshake failure")
	}
}

// clientWithCert returns a client that presents a certificate even if the server does not accept
// its authority.
func clientWithCert(certs *certDir, cert tls.Certificate) *http.Client {
	c := certs.client()
	c.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &cert, nil
	}
	return c
}

func TestTLSAndPlaintextOnSamePort(t *testing.T) {
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{})
	front, strict := freeAddress(), freeAddress()
	startWeft(t, setup{
		listeners: list{
			tlsListener("front", front, certs.context("server", nil), object{"inspector": true}),
			tlsListener("strict", strict, certs.context("server", nil)),
		},
		tables: list{routeTable("front", directRoute("/", 200, "accepted")), routeTable("strict", directRoute("/", 200, "accepted"))},
	}.config())
	for name, c := range map[string]struct {
		client   *http.Client
		url      string
		accepted bool
	}{
		"TLS":                              {certs.client(), "https://" + front, true},
		"plaintext":                        {newClient(t), "http://" + front, true},
		"only TLS":                         {certs.client(), "https://" + strict, true},
		"plaintext on a TLS-only listener": {newClient(t), "http://" + strict, false},
	} {
		if resp, err := tryRequest(t.Context(), c.client, "GET", c.url, ""); (err == nil && resp.body == "accepted") != c.accepted {
			t.Errorf("%s: %+v, %v; want accepted: %v", name, resp, err, c.accepted)
		}
	}
}

// TestCertificatesRotateUnderLoad verifies that no request fails while the test replaces the files
// as Kubernetes does, and that new connections get the new certificate.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	certs := newCertDir(t)
	rotate := func(version, cn string) {
		dir := certs.path(version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		leaf := certs.ca.Issue(testpki.Spec{CommonName: cn})
		leaf.Write(t, dir, "server")
		next := certs.path("..next")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, certs.path("..data")); err != nil {
			t.Fatal(err)
		}
	}
	rotate("v1", "cert-1")
	for _, name := range []string{"server.pem", "server.key"} {
		if err := os.Symlink(filepath.Join("..data", name), certs.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{tlsListener("front", front, certs.context("server", nil))},
		tables:    list{routeTable("front", directRoute("/", 200, "accepted"))},
	}.config())
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var failed, served atomic.Int64
	for i := range 8 {
		c := certs.client()
		newConns := i%2 == 0 // a connection for each request
		c.Transport.(*http.Transport).DisableKeepAlives = newConns
		load.Go(func() {
			for ctx.Err() == nil {
				resp, err := tryRequest(t.Context(), c, "GET", "https://"+front+"/", "")
				if err != nil || resp.body != "accepted" {
					failed.Add(1)
					t.Errorf("under load: %+v, %v; want \"accepted\"", resp, err)
					return
				}
				served.Add(1)
			}
		})
	}
	for i, cn := range []string{"cert-2", "cert-3"} {
		rotate(fmt.Sprintf("v%d", i+2), cn)
		eventually(t, "the certificate is "+cn, func() bool { return presentedName(t, certs, front) == cn })
	}
	stop()
	load.Wait()
	if failed.Load() > 0 || served.Load() < 100 {
		t.Errorf("%d requests failed, %d were served; want none and at least 100", failed.Load(), served.Load())
	}
	if n := w.metric("weft_tls_certificate_reloads_total", "result", "applied"); n < 2 {
		t.Errorf("%v reloads are counted, want at least 2", n)
	}
}

// skipVerify makes a client skip the verification of servers.
func skipVerify(c *http.Client) {
	c.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
}

// presentedName returns the common name of the certificate that a listener presents.
func presentedName(t *testing.T, certs *certDir, address string) string {
	t.Helper()
	return presentedNameFor(t, certs, address, "127.0.0.1")
}

// presentedNameFor is presentedName for clients that send name as SNI, or no SNI if name is "".
func presentedNameFor(t *testing.T, certs *certDir, address, name string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: certs.ca.Pool(), ServerName: name, InsecureSkipVerify: name == ""})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestLargeBodiesOverTLS verifies bodies larger than the socket buffers in both directions and both
// HTTP versions. The client uses TLS, and so does the connection between two listeners.
func TestLargeBodiesOverTLS(t *testing.T) {
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{})
	echo := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	direct, chained := freeAddress(), freeAddress()
	startWeft(t, setup{
		listeners: list{tlsListener("direct", direct, certs.context("server", nil)), tlsListener("through", chained, certs.context("server", nil))},
		tables:    list{routeTable("direct", routeTo("/", "echo", object{"upstream_protocol": "Http1"})), routeTable("through", routeTo("/", "direct"))},
		clusters: list{
			cluster("echo", nil, echo.address),
			cluster("direct", object{"tls_context": object{"status": true, "ca_cert": certs.path("ca.pem")}}, direct),
		},
	}.config())
	body := strings.Repeat("0123456789abcdef", 1<<19)
	for _, front := range []string{direct, chained} {
		for _, h2 := range []bool{false, true} {
			c := certs.client()
			c.Transport.(*http.Transport).ForceAttemptHTTP2 = h2
			if got := sendRequest(t, c, "POST", "https://"+front+"/", body); got.status != 200 || got.body != body {
				t.Errorf("HTTP/2 %t: status %d and an echo of %d bytes; want 200 and the %d bytes of the request", h2, got.status, len(got.body), len(body))
			}
		}
	}
}

// TestSlowHandshakesAreBounded verifies that timeouts close connections that send nothing or an
// incomplete ClientHello, and that Weft serves other clients at the same time.
func TestSlowHandshakesAreBounded(t *testing.T) {
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{})
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{tlsListener("front", front, certs.context("server", object{"handshake_timeout": "1s"}), object{"connection_idle_timeout": "2s"})},
		tables:    list{routeTable("front", directRoute("/", 200, "accepted"))},
	}.config())
	const slowConns = 500
	conns := make([]net.Conn, slowConns)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", front); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		if i%2 == 0 {
			_, _ = conns[i].Write([]byte("\x16\x03\x01\x02\x00\x01\x00"))
		}
	}
	if resp := sendRequest(t, certs.client(), "GET", "https://"+front+"/", ""); resp.body != "accepted" {
		t.Errorf("client that completes the handshake: %+v, want \"accepted\"", resp)
	}
	eventually(t, "the slow connections are closed", func() bool { return w.metric("weft_listener_connections_active", "listener", "front") <= 1 })
	if n := w.metric("weft_listener_tls_handshakes_total", "listener", "front", "result", "timeout"); n != slowConns/2 {
		t.Errorf("%v handshakes timed out, want %d", n, slowConns/2)
	}
	if n := w.metric("weft_listener_connections_closed_total", "listener", "front", "cause", "tls_handshake"); n != slowConns/2 {
		t.Errorf("%v connections closed during the handshake, want %d", n, slowConns/2)
	}
}

// TestThirdPartyTLSClients verifies that curl, openssl and sslscan accept the TLS of Weft.
func TestThirdPartyTLSClients(t *testing.T) {
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{DNS: []string{"localhost"}, RSA: true})
	front := freeAddress()
	_, port, _ := net.SplitHostPort(front)
	startWeft(t, setup{
		listeners: list{tlsListener("front", front, certs.context("server", nil))},
		tables:    list{routeTable("front", directRoute("/", 200, "in\n"))},
	}.config())
	url := "https://localhost:" + port + "/"
	request := "printf 'GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n'"
	client := "openssl s_client -connect " + front + " -servername localhost -CAfile " + certs.path("ca.pem")
	for _, test := range []struct {
		name, script   string
		want, unwanted []string
	}{
		{"curl, HTTP/2", "curl -sS --http2 --cacert " + certs.path("ca.pem") + " -w '%{http_version}' " + url, []string{"in\n2"}, nil},
		{"curl, HTTP/1.1", "curl -sS --http1.1 --cacert " + certs.path("ca.pem") + " -w '%{http_version}' " + url, []string{"in\n1.1"}, nil},
		{"curl, TLS 1.2", "curl -sS --tls-max 1.2 --cacert " + certs.path("ca.pem") + " -w '%{http_version}' " + url, []string{"in\n2"}, nil},
		{"s_client, TLS 1.3", "(" + request + "; sleep 0.5) | " + client + " 2>&1", []string{"Verify return code: 0 (ok)", "TLSv1.3", "HTTP/1.1 200 OK", "in\n"}, nil},
		{
			"s_client, KeyUpdate", "(printf 'K\\n'; sleep 0.5; " + request + "; sleep 0.5) | " + client + " -msg 2>&1",
			[]string{"<<< TLS 1.3, Handshake [length 0005], KeyUpdate", "HTTP/1.1 200 OK", "close_notify"}, nil,
		},
		{"s_client, session resumption", client + " -sess_out " + certs.path("s") + " < /dev/null >/dev/null 2>&1; (" + request + "; sleep 0.5) | " +
			client + " -sess_out " + certs.path("s") + " >/dev/null 2>&1; " + client + " -sess_in " + certs.path("s") + " < /dev/null 2>&1", []string{"Reused, TLSv1.3"}, nil},
		{"s_client, TLS 1.1", client + " -tls1_1 -cipher ALL:@SECLEVEL=0 < /dev/null 2>&1", []string{"alert protocol version", "Cipher is (NONE)"}, nil},
		{"s_client, small fragments", "(" + request + "; sleep 0.5) | " + client + " -maxfraglen 512 -split_send_frag 512 2>&1", []string{"HTTP/1.1 200 OK"}, nil},
		{
			"sslscan", "sslscan --no-colour " + front, []string{"TLSv1.2   enabled", "TLSv1.3   enabled", "ECDHE-RSA-AES128-GCM-SHA256"},
			[]string{"TLSv1.0   enabled", "TLSv1.1   enabled", "SSLv3     enabled", "SSLv2     enabled", "CBC", "-SHA \n", "DES", "RC4", "NULL", "Compression enabled"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			program, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(test.script, "("), "printf "), " ")
			if strings.Contains(test.script, "openssl") {
				program = "openssl"
			}
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("%s is not installed", program)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
			defer cancel()
			out, err := exec.CommandContext(ctx, "sh", "-c", test.script).CombinedOutput()
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output lacks %q (%v):\n%s", want, err, out)
				}
			}
			for _, unwanted := range test.unwanted {
				if strings.Contains(string(out), unwanted) {
					t.Errorf("the output has %q, want it absent:\n%s", unwanted, out)
				}
			}
		})
	}
}

// TestNginxTLSOnBothSides verifies TLS with nginx in front of Weft (proxy_ssl) and behind it.
func TestNginxTLSOnBothSides(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx = "/usr/sbin/nginx"; !exists(nginx) {
			t.Skip("nginx is not installed")
		}
	}
	certs := newCertDir(t)
	certs.issue("weft", testpki.Spec{DNS: []string{"weft.shop"}})
	certs.issue("nginx", testpki.Spec{DNS: []string{"nginx.shop"}})
	nginxFront, front, nginxBack := freeAddress(), freeAddress(), freeAddress()
	startWeft(t, setup{
		listeners: list{tlsListener("front", front, certs.context("weft", object{"require_client_cert": true}))},
		tables:    list{routeTable("front", routeTo("/", "nginx"))},
		clusters:  list{cluster("nginx", object{"tls_context": certs.context("weft", object{"server_name": "nginx.shop"})}, nginxBack)},
	}.config())
	file := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate %[1]s/nginx.pem; ssl_certificate_key %[1]s/nginx.key;
  server { listen %[2]s; location / {
    proxy_pass https://%[3]s; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_ssl_certificate %[1]s/nginx.pem; proxy_ssl_certificate_key %[1]s/nginx.key;
    proxy_ssl_trusted_certificate %[1]s/ca.pem; proxy_ssl_verify on; proxy_ssl_name weft.shop; proxy_ssl_server_name on; } }
  server { listen %[4]s ssl; ssl_client_certificate %[1]s/ca.pem; ssl_verify_client on;
    location / { return 200 "$ssl_protocol $ssl_client_verify"; } }
}`, certs.dir, nginxFront, front, nginxBack)
	if err := os.WriteFile(certs.path("nginx.conf"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-c", certs.path("nginx.conf"), "-p", certs.dir)
	log := newOutput()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "nginx responds", func() bool {
		resp, err := tryRequest(t.Context(), newClient(t), "GET", "http://"+nginxFront+"/", "")
		return err == nil && resp.status == 200
	})
	for range 3 {
		if got := sendRequest(t, newClient(t), "GET", "http://"+nginxFront+"/", ""); got.body != "TLSv1.3 SUCCESS" {
			t.Errorf("nginx, Weft, nginx: %d %q; want \"TLSv1.3 SUCCESS\"", got.status, got.body)
		}
	}
}
