package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// TestRBACNetworkFilter verifies that the rbac network filter rejects a connection before the
// upstream sees it and before Weft reads a request.
func TestRBACNetworkFilter(t *testing.T) {
	t.Parallel()
	const cart, bank = "spiffe://shop.test/ns/shop/sa/cart", "spiffe://shop.test/ns/bank/sa/pay"
	ca := newTestCA(t)
	cert, key := ca.issue("app.test", "")
	rbac := object{"type": "rbac", "config": object{"rules": object{"policies": object{"shop": object{
		"permissions": list{object{"requested_server_name": object{"exact": "app.test"}}},
		"principals":  list{object{"authenticated": object{"principal_name": object{"prefix": "spiffe://shop.test/ns/shop/"}}}},
	}}}}}
	accepted := make(chan struct{}, 16)
	app := startTCPServer(t, func(c net.Conn) {
		accepted <- struct{}{}
		_, _ = io.WriteString(c, "hello")
	})
	web := startUpstream(t, describeRequest)
	tcpFront, httpFront := freeAddress(), freeAddress()
	tlsListener := func(name, address string, filter object) object {
		return object{"name": name, "address": address, "filter_chains": list{object{
			"filters":     list{rbac, filter},
			"tls_context": object{"status": true, "cert_chain": cert, "private_key": key, "ca_cert": ca.caPEM(), "verify_client": true},
		}}}
	}
	w := startWeft(t, setup{
		listeners: list{
			tlsListener("bytes", tcpFront, object{"type": "tcp_proxy", "config": object{"cluster": "app"}}),
			tlsListener("http", httpFront, object{"type": "proxy", "config": object{"downstream_protocol": "Http1", "router_config_name": "table"}}),
		},
		tables:   list{routeTable("table", routeTo("/", "web"))},
		clusters: list{cluster("app", nil, app), cluster("web", nil, web.address)},
	}.config())
	// response connects with the TLS configuration, sends a request, and returns every byte that
	// it receives.
	response := func(address string, tlsConfig *tls.Config) string {
		conn, err := tls.Dial("tcp", address, tlsConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(waitTimeout))
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n")
		data, _ := io.ReadAll(conn) // a reset also ends the response
		return string(data)
	}
	rejected := 0.0
	for _, c := range []struct {
		name      string
		tlsConfig *tls.Config
		allowed   bool
	}{
		{"same namespace", ca.clientTLS("cart", cart, "app.test"), true},
		{"other namespace", ca.clientTLS("pay", bank, "app.test"), false},
		{"no certificate", ca.clientTLS("", "", "app.test"), false},
		{"other SNI", ca.clientTLS("cart", cart, "127.0.0.1"), false},
	} {
		if got := response(tcpFront, c.tlsConfig); (got == "hello") != c.allowed || !c.allowed && got != "" {
			t.Errorf("%s, TCP: read %q, want it to be served: %t", c.name, got, c.allowed)
		}
		if c.allowed {
			<-accepted
		} else {
			rejected++
		}
		if got := response(httpFront, c.tlsConfig); (len(got) > 0 && got[:12] == "HTTP/1.1 200") != c.allowed || !c.allowed && got != "" {
			t.Errorf("%s, HTTP: read %q, want it to be served: %t", c.name, got, c.allowed)
		}
	}
	if len(accepted) > 0 {
		t.Error("a rejected connection reached the upstream, want none")
	}
	eventually(t, "the rejected connections are counted", func() bool {
		return w.metric("weft_listener_connections_closed_total", "listener", "bytes", "cause", "denied") == rejected &&
			w.metric("weft_listener_connections_closed_total", "listener", "http", "cause", "denied") == rejected &&
			w.metric("weft_filter_rbac_connections_denied_total") == 2*rejected &&
			w.metric("weft_filter_rbac_connections_allowed_total") == 2
	})
}
