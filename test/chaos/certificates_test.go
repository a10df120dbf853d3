package chaos

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestCertificatesRotate verifies that no request fails and that new connections get a certificate
// that is at most two versions old, while the certificates of both sides of Weft change every
// second by a symbolic link swap as in Kubernetes. Clients use mutual TLS to one listener, which
// forwards to another listener with mutual TLS.
func TestCertificatesRotate(t *testing.T) {
	r := newTestRun(t)
	ca := testpki.New(t)
	dir := t.TempDir()
	ca.Write(dir)
	client := ca.Issue(testpki.Spec{CommonName: "client"})
	rotate := func(version int) {
		data := fmt.Sprintf("version%d", version)
		if err := os.Mkdir(filepath.Join(dir, data), 0o700); err != nil {
			r.Error(err)
			return
		}
		for _, side := range []string{"server", "client"} {
			leaf := ca.Issue(testpki.Spec{CommonName: fmt.Sprintf("%s %d", side, version)})
			leaf.Write(t, filepath.Join(dir, data), side)
		}
		next := filepath.Join(dir, "..next")
		if err := os.Symlink(data, next); err != nil {
			r.Error(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			r.Error(err)
		}
	}
	rotate(0)
	tlsContext := func(side string, extra object) object {
		path := func(name string) string { return filepath.Join(dir, name) }
		for _, name := range []string{side + ".pem", side + ".key"} {
			if err := os.Symlink(filepath.Join("..data", name), path(name)); err != nil && !os.IsExist(err) {
				r.Fatal(err)
			}
		}
		return object{"status": true, "ca_cert": path("ca.pem"), "cert_chain": path(side + ".pem"), "private_key": path(side + ".key")}.with(extra)
	}
	secured := func() object {
		return object{"tls_context": tlsContext("server", object{"require_client_cert": true, "verify_client": true})}
	}
	_, addrs := r.newHost("host")
	front, back := freeAddress(), freeAddress()
	w := r.newWeft(setup{
		listeners: list{listener("front", front, "Auto", secured()), listener("back", back, "Auto", secured())},
		tables:    list{routeTable("front", route("/", "back")), routeTable("back", route("/", "host"))},
		clusters: list{
			// Short-lived connections to the back listener cause handshakes during the whole test.
			cluster("back", []string{back}, object{"tls_context": tlsContext("client", nil), "max_request_per_conn": 20}),
			cluster("host", []string{addrs.http}),
		},
	}, nil, nil)

	config := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{client.TLS}}
	clients := map[string]*httpClient{}
	var loads []load
	for _, c := range []struct {
		name            string
		http2, newConns bool
		rate            float64
	}{{"http1-keepalive", false, false, 60}, {"http1-new-conn", false, true, 25}, {"http2-keepalive", true, false, 60}, {"http2-new-conn", true, true, 25}} {
		clients[c.name] = r.newTLSClient(front, config.Clone(), c.http2, c.newConns)
		loads = append(loads, clients[c.name].getLoad(c.name, "/echo", c.rate))
	}
	grpc := r.newTLSClient(front, config.Clone(), true, false)
	clients["grpc"] = grpc
	loads = append(loads, grpc.grpcLoad("grpc", 40))
	closeConns := func() {
		for _, c := range clients {
			c.transport.CloseIdleConnections()
		}
	}
	w.warmUp(closeConns, loads...)

	versions := 1
	end := r.runInBackground(func(stop <-chan struct{}) {
		for ; sleep(stop, time.Second); versions++ {
			rotate(versions)
			if n, err := presentedVersion(front, config); err != nil || n < versions-2 {
				r.Errorf("after certificate version %d a new connection got version %d, %v; want version %d or later", versions, n, err, versions-2)
			}
		}
	})
	results := r.runLoads(loads...)
	end()
	r.Logf("%d certificates on each side", versions)
	for _, l := range loads {
		r.check(results[l.name], bounds{p50: 40 * time.Millisecond, p99: 400 * time.Millisecond})
	}
	for _, metric := range []string{"weft_listener_tls_handshakes_total", "weft_cluster_tls_handshakes_total"} {
		if n := w.metric(metric); n < r.duration.Seconds() {
			r.Errorf("%s = %v: too few new connections, want at least one per second", metric, n)
		}
	}
	if n := w.metric("weft_tls_certificate_reloads_total", `result="applied"`); n < float64(versions-2) {
		r.Errorf("weft applied %v certificate reloads, want at least %d", n, versions-2)
	}
	closeConns()
	w.checkNoLeak()
}

// presentedVersion returns the version in the common name of the listener's certificate.
func presentedVersion(address string, config *tls.Config) (version int, err error) {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // no request is sent
	_, err = fmt.Sscanf(conn.ConnectionState().PeerCertificates[0].Subject.CommonName, "server %d", &version)
	return version, err
}
