package e2e

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/protocol/proxyproto"
)

// proxyProtocolKeys returns the keys of a listener that accepts the PROXY protocol.
func proxyProtocolKeys(config object) object {
	return object{"listener_filters": list{object{"type": "proxy_protocol", "config": config}}}
}

// clientFrom returns a client whose connections come from a loopback address.
func clientFrom(t *testing.T, ip string) *http.Client {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 4 * waitTimeout}
}

// startProgram starts a third-party program in a directory with its configuration, and waits until
// it listens on address. It skips the test if the program is not installed.
func startProgram(t *testing.T, address, file, text string, command ...string) {
	t.Helper()
	path, err := exec.LookPath(command[0])
	if err != nil {
		t.Skipf("%s is not installed", command[0])
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := newOutput()
	cmd := exec.Command(path, command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the program was terminated
		if t.Failed() {
			t.Logf("log of %s:\n%s", command[0], log.String())
		}
	})
	eventually(t, command[0]+" listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// startHAProxy starts HAProxy with text after its defaults.
func startHAProxy(t *testing.T, address, text string) {
	t.Helper()
	startProgram(t, address, "haproxy.cfg", "global\n\tnbthread 1\n\tmaxconn 64\n\tno strict-limits\ndefaults\n"+
		"\ttimeout connect 5s\n\ttimeout client 60s\n\ttimeout server 60s\n"+text, "haproxy", "-db", "-f", "haproxy.cfg")
}

// startNginx starts nginx with text in its server block.
func startNginx(t *testing.T, address, text string) {
	t.Helper()
	startProgram(t, address, "nginx.conf", "worker_processes 1; daemon off; pid nginx.pid; error_log stderr error;\n"+
		"events { worker_connections 64; }\nhttp { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;\n"+
		"uwsgi_temp_path u; scgi_temp_path s; server { "+text+" } }\n", "nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf")
}

// TestProxyProtocolFromProxies verifies that the upstream gets the proxied address, and that the
// access log has the proxied and the direct remote address.
func TestProxyProtocolFromProxies(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"} {
		t.Run("haproxy "+version, func(t *testing.T) {
			t.Parallel()
			front, edge := freeAddress(), freeAddress()
			app := startUpstream(t, describeRequest)
			w := startWeft(t, setup{
				listeners: list{httpListenerWith("front", front, object{"x_forwarded": "set"}, proxyProtocolKeys(nil), object{"access_logs": list{object{
					"log_path": "stdout", "log_format": "%downstream_remote_ip% by %downstream_direct_remote_address%"}}})},
				tables:   list{routeTable("front", routeTo("/", "app"))},
				clusters: list{cluster("app", nil, app.address)},
			}.config())
			startHAProxy(t, edge, "\tmode tcp\nfrontend f\n\tbind "+edge+"\n\tunique-id-format %ci\n\tdefault_backend b\nbackend b\n\tserver s "+front+" "+version+"\n")
			got := sendRequest(t, clientFrom(t, "127.9.8.7"), "GET", "http://"+edge+"/", "")
			if !strings.Contains(got.body, "X-Forwarded-For: 127.9.8.7\r\n") {
				t.Errorf("the upstream got %d %s, want the client's address", got.status, got.body)
			}
			w.stdout.await(t, 0, "127.9.8.7 by 127.0.0.1:")
		})
	}
}

// TestProxyProtocolFromCurl verifies PROXY protocol headers from curl, with and without TLS.
func TestProxyProtocolFromCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{DNS: []string{"localhost"}, IPs: []string{"127.0.0.1"}})
	plain, overTLS, lenient := freeAddress(), freeAddress(), freeAddress()
	log := object{"access_logs": list{object{"log_path": "stdout", "log_format": "%listener% %downstream_remote_ip% by %downstream_direct_remote_address%"}}}
	w := startWeft(t, setup{
		listeners: list{
			httpListener("plain", plain, proxyProtocolKeys(nil), log),
			tlsListener("tls", overTLS, certs.context("server", nil), proxyProtocolKeys(nil), log),
			httpListener("lenient", lenient, proxyProtocolKeys(object{"allow_requests_without_proxy_protocol": true}), log),
		},
		tables: list{routeTable("plain", directRoute("/", 200, "accepted")), routeTable("tls", directRoute("/", 200, "accepted")), routeTable("lenient", directRoute("/", 200, "accepted"))},
	}.config())
	for _, test := range []struct {
		url      string
		header   bool
		accepted bool
	}{
		{"http://" + plain, true, true},
		{"http://" + plain, false, false},
		{"https://" + overTLS, true, true},
		{"https://" + overTLS, false, false},
		{"http://" + lenient, true, true},
		{"http://" + lenient, false, true},
	} {
		args := []string{"-sS", "--max-time", "30", "--interface", "127.9.8.7", "--cacert", certs.path("ca.pem"), test.url}
		if test.header {
			args = append(args, "--haproxy-protocol")
		}
		out, err := exec.CommandContext(t.Context(), "curl", args...).CombinedOutput()
		if accepted := err == nil && string(out) == "accepted"; accepted != test.accepted {
			t.Errorf("%s, with a header: %v: %q, %v; want accepted: %v", test.url, test.header, out, err, test.accepted)
		}
	}
	for _, name := range []string{"plain", "tls"} {
		w.stdout.await(t, 0, name+" 127.9.8.7 by 127.9.8.7:")
		eventually(t, "the rejection is counted", func() bool {
			return w.metric("weft_listener_connections_closed_total", `listener="`+name+`"`, `cause="proxy_protocol"`) == 1
		})
	}
}

// TestProxyProtocolToProxies verifies that a tcp_proxy sends the address of the client to
// HAProxy and nginx.
func TestProxyProtocolToProxies(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		for name, start := range map[string]func(t *testing.T, address string){
			"haproxy": func(t *testing.T, address string) {
				startHAProxy(t, address, "\tmode http\nfrontend f\n\tbind "+address+" accept-proxy\n"+
					"\thttp-request return status 200 content-type text/plain lf-string \"%[src]\"\n")
			},
			"nginx": func(t *testing.T, address string) {
				startNginx(t, address, "listen "+address+" proxy_protocol; location / { return 200 $proxy_protocol_addr; }")
			},
		} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				front, upstream := freeAddress(), freeAddress()
				start(t, upstream)
				startWeft(t, setup{
					listeners: list{tcpListener("front", front, object{"cluster": "back"})},
					clusters: list{cluster("back", object{"proxy_protocol": version, "health_check": object{
						"protocol": "TCP", "timeout": "1s", "interval": "50ms"}}, upstream)},
				}.config())
				if got := sendRequest(t, clientFrom(t, "127.9.8.7"), "GET", "http://"+front+"/", ""); got.body != "127.9.8.7" {
					t.Errorf("the upstream got the client address %q, want 127.9.8.7", got.body)
				}
			})
		}
	}
}

// TestProxyProtocolInBindMode verifies that in bind mode each upstream connection sends the
// address of its client, in both HTTP versions and over TLS.
func TestProxyProtocolInBindMode(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	server := certs.issue("server", testpki.Spec{IPs: []string{"127.0.0.1"}})
	bundle := certs.path("both.pem")
	if err := os.WriteFile(bundle, append(server.Cert, server.Key...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		protocol string
		extra    object
		start    func(t *testing.T, address string)
	}{
		"HTTP/1.1": {"Http1", nil, func(t *testing.T, address string) {
			startNginx(t, address, "listen "+address+" proxy_protocol; location / { return 200 $proxy_protocol_addr; }")
		}},
		"HTTP/2": {"Http2", nil, func(t *testing.T, address string) {
			startHAProxy(t, address, "\tmode http\nfrontend f\n\tbind "+address+" accept-proxy proto h2\n"+
				"\thttp-request return status 200 content-type text/plain lf-string \"%[src]\"\n")
		}},
		"HTTP/2 over TLS": {"Http2", object{"tls_context": object{"status": true, "ca_cert": certs.path("ca.pem")}}, func(t *testing.T, address string) {
			startHAProxy(t, address, "\tmode http\nfrontend f\n\tbind "+address+" accept-proxy ssl crt "+bundle+" alpn h2\n"+
				"\thttp-request return status 200 content-type text/plain lf-string \"%[src]\"\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front, upstream := freeAddress(), freeAddress()
			test.start(t, upstream)
			startWeft(t, setup{
				listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": "Http1", "upstream_protocol": test.protocol, "router_config_name": "front"}})},
				tables:   list{routeTable("front", routeTo("/", "back"))},
				clusters: list{cluster("back", object{"proxy_protocol": "v2", "connection_pool": object{"mode": "bind"}}.with(test.extra), upstream)},
			}.config())
			first, second := clientFrom(t, "127.9.8.7"), clientFrom(t, "127.9.8.6")
			for range 3 {
				for ip, c := range map[string]*http.Client{"127.9.8.7": first, "127.9.8.6": second} {
					if got := sendRequest(t, c, "GET", "http://"+front+"/", ""); got.body != ip {
						t.Errorf("the upstream got the client address %q, want %s", got.body, ip)
					}
				}
			}
		})
	}
}

func proxyProtocolExample(t *testing.T) {
	e := loadExample(t, "proxy_protocol.json")
	startUpstreamAt(t, e.address("8145"), describeRequest)
	l, err := net.Listen("tcp", e.address("8146"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := e.run("proxy_protocol.json")
	source, destination := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")
	header := string(proxyproto.AppendV2(nil, source, destination))

	c := dialRaw(t, e.address("2145"))
	if _, err := io.WriteString(c, header); err != nil {
		t.Fatal(err)
	}
	if _, body := c.send("GET / HTTP/1.1\nHost: a\n\n").readResponse("GET"); !strings.Contains(body, "X-Forwarded-For: 192.0.2.1\r\n") {
		t.Errorf("the upstream got %s, want X-Forwarded-For: 192.0.2.1", body)
	}
	w.stdout.await(t, 0, "192.0.2.1 by 127.0.0.1:")
	if got := dialRaw(t, e.address("2145")).send("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n").readToEnd(); got != "" {
		t.Errorf("response to version 1: %q, want none", got)
	}

	if _, err := io.WriteString(dialRaw(t, e.address("2146")), header+"hello"); err != nil {
		t.Fatal(err)
	}
	host, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	got := make([]byte, len(header)+len("hello"))
	if _, err := io.ReadFull(host, got); err != nil || string(got) != header+"hello" {
		t.Errorf("the database got %q, %v, want %q", got, err, header+"hello")
	}
}
