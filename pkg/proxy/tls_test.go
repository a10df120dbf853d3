package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// tlsOrigin is origin over TLS with one request per connection.
func tlsOrigin(t *testing.T, cert tls.Certificate, text string) (address string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: respondText(text), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.SetKeepAlivesEnabled(false)
	return serveAt(t, ln, s)
}

// TestUpstreamTLSSurvivesConfigChanges verifies that a cluster with TLS serves requests after
// the same configuration is applied again.
func TestUpstreamTLSSurvivesConfigChanges(t *testing.T) {
	ca := testpki.New(t)
	dir := t.TempDir()
	ca.Write(dir)
	host := tlsOrigin(t, ca.Issue(testpki.Spec{}).TLS, "in")
	s := setup{
		routes: routeTo("app"), address: freeAddress(t),
		clusters: `{"name": "app", "lb_type": "LB_ROUNDROBIN", "hosts": [{"address": "` + host + `"}],
			"tls_context": {"status": true, "ca_cert": "` + filepath.Join(dir, "ca.pem") + `"}}`,
	}
	r := newRig(t)
	for i := range 4 {
		r.apply(s.snapshot(t))
		if got := roundTrip(t, s.address, get("/")); got.StatusCode != 200 || got.body != "in" {
			t.Errorf("after %d changes: response %d %q, want 200 \"in\"\n%s", i, got.StatusCode, got.body, r.log)
		}
	}
}

// tlsListenerConfig returns a configuration with a listener that has fall_back and the certificate
// own.pem.
func tlsListenerConfig(t *testing.T, address, dir string) *config.Snapshot {
	t.Helper()
	return parse(t, `{"servers": [{
		"listeners": [{"name": "front", "address": "`+address+`", "filter_chains": [{
			"tls_context": {"status": true, "fall_back": true,
				"cert_chain": "`+filepath.Join(dir, "own.pem")+`", "private_key": "`+filepath.Join(dir, "own.key")+`"},
			"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+directRoute("in")+`]}]}]
	}]}`)
}

// TestPlaintextFallbackSwitchesToTLS verifies that a listener with fall_back switches to TLS when
// its certificate appears, even with an unchanged configuration, and does not fall back when the
// file disappears.
func TestPlaintextFallbackSwitchesToTLS(t *testing.T) {
	ca := testpki.New(t)
	dir, address := t.TempDir(), freeAddress(t)
	acceptsTLS := func() bool {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool()})
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	r := newRig(t)
	r.apply(tlsListenerConfig(t, address, dir))
	plaintext := dialClient(t, address)
	if got := plaintext.roundTrip(get("/")); got.body != "in" || acceptsTLS() {
		t.Fatalf("without a certificate: plaintext response %q, TLS accepted: %v; want %q, false", got.body, acceptsTLS(), "in")
	}
	leaf := ca.Issue(testpki.Spec{})
	leaf.Write(t, dir, "own")
	r.apply(tlsListenerConfig(t, address, dir))
	if !acceptsTLS() {
		t.Error("with a certificate: TLS was not accepted")
	}
	if got := plaintext.roundTrip(get("/")); !got.Close {
		t.Error("a plaintext connection stays open")
	}
	if err := os.Remove(filepath.Join(dir, "own.pem")); err != nil {
		t.Fatal(err)
	}
	r.apply(tlsListenerConfig(t, address, dir))
	if !acceptsTLS() {
		t.Error("the listener fell back to plaintext although it has a certificate")
	}
}

// TestClosedHandshakeRecorderHasNoSeries verifies that a closed recorder has no series and does not
// disturb those of its successor.
func TestClosedHandshakeRecorderHasNoSeries(t *testing.T) {
	r := newRig(t)
	old := newHandshakeRecorder(r.metrics, metrics.ListenerHandshakes, "front")
	old.count(nil)
	successor := newHandshakeRecorder(r.metrics, metrics.ListenerHandshakes, "front")
	successor.count(nil)
	successor.count(nil)
	old.close()
	old.count(nil)
	old.count(io.EOF)
	if n := r.value(metrics.ListenerHandshakes.Name, "front", metrics.ResultOK); n != 2 {
		t.Errorf("%v handshakes, want the 2 of the successor", n)
	}
	if n := r.value(metrics.ListenerHandshakes.Name, "front"); n != 2 {
		t.Errorf("%v handshakes with any result, want 2", n)
	}
	successor.close()
	if r.exports("front") {
		t.Error("series remain after close")
	}
}

// TestResponseUntilCloseNeedsCloseNotify verifies that a response that ends with the connection is
// complete only after a TLS close_notify. Otherwise it may be truncated (RFC 9112 9.8).
func TestResponseUntilCloseNeedsCloseNotify(t *testing.T) {
	ca := testpki.New(t)
	dir := t.TempDir()
	ca.Write(dir)
	cert := ca.Issue(testpki.Spec{})
	for name, closeConn := range map[string]func(*tls.Conn) error{
		"complete":  (*tls.Conn).Close,
		"truncated": func(c *tls.Conn) error { return c.NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			served := make(chan error, 1)
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					served <- err
					return
				}
				_, err = http.ReadRequest(bufio.NewReader(conn))
				_, werr := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\ncontent")
				served <- errors.Join(err, werr, closeConn(conn.(*tls.Conn)))
			}()
			_, address := setup{
				routes: routeTo("app"),
				clusters: `{"name": "app", "lb_type": "LB_ROUNDROBIN", "hosts": [{"address": "` + ln.Addr().String() + `"}],
					"tls_context": {"status": true, "ca_cert": "` + filepath.Join(dir, "ca.pem") + `"}}`,
			}.run(t)
			c := dialClient(t, address)
			c.send(get("/"))
			response, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if complete := err == nil; string(body) != "content" || complete != (name == "complete") {
				t.Errorf("the client read %q, %v; want \"content\", and an error unless complete", body, err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRemovedClusterTLSOutlivesExchanges verifies that a removed cluster keeps its TLS client until
// the exchanges of all configurations that contain it have ended, however many configurations
// follow.
func TestRemovedClusterTLSOutlivesExchanges(t *testing.T) {
	u := newUpstreamTLS(newRig(t).server.reloader, nil)
	apply := func(clusters ...*config.Cluster) *upstreamTLSTable {
		table, err := u.prepare(clusters)
		if err != nil {
			t.Fatal(err)
		}
		u.commit(table)
		return table
	}
	app := &config.Cluster{Name: "app", TLS: &config.TLS{ServerName: "app"}}
	first := apply(app)
	empty := apply()
	other := apply(&config.Cluster{Name: "other", TLS: &config.TLS{ServerName: "other"}})
	u.closePrevious(first)
	if u.find("app", 0) == nil || u.find("other", 0) == nil {
		t.Error("a cluster lost its TLS client while exchanges may use it")
	}
	u.closePrevious(empty)
	u.closePrevious(other)
	if u.find("app", 0) != nil || u.find("other", 0) == nil {
		t.Error("after the last exchange the removed cluster still has a TLS client, or the other cluster lost its client")
	}
}
