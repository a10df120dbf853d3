package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
)

// filterChain returns a filter chain whose route table has the same name.
func filterChain(name string, match object, extra object) object {
	return object{
		"name": name, "match": match,
		"filters": list{object{"type": "proxy", "config": object{"downstream_protocol": "Http1,Http2", "router_config_name": name}}},
	}.with(extra)
}

// chainListener returns a listener with these filter chains.
func chainListener(name, address string, extra object, chains ...object) object {
	all := list{}
	for _, c := range chains {
		all = append(all, c)
	}
	return object{"name": name, "address": address, "filter_chains": all}.with(extra)
}

func directTables(names ...string) list {
	tables := list{}
	for _, name := range names {
		tables = append(tables, routeTable(name, directRoute("/", 200, name)))
	}
	return tables
}

func TestFilterChainMatchesALPN(t *testing.T) {
	t.Parallel()
	dir := newCertDir(t)
	dir.issue("server", testpki.Spec{})
	front := freeAddress()
	certs := object{"tls_context": dir.context("server", nil)}
	startWeft(t, setup{
		listeners: list{chainListener("front", front, object{"default_filter_chain": object{
			"filters": list{object{"type": "proxy", "config": object{"downstream_protocol": "Http1", "router_config_name": "rest"}}},
		}},
			filterChain("h2", object{"application_protocols": list{"h2"}, "transport_protocol": "tls"}, certs),
			filterChain("http1", object{"application_protocols": list{"http/1.1"}, "transport_protocol": "tls"}, certs),
			filterChain("h2c", object{"application_protocols": list{"h2c"}, "transport_protocol": "raw_buffer"}, nil),
		)},
		tables: directTables("http1", "h2", "h2c", "rest"),
	}.config())
	first := dir.client()
	first.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	h2cClient := &http.Client{Transport: &http.Transport{Protocols: httpProtocols("Http2")}, Timeout: waitTimeout}
	defer h2cClient.CloseIdleConnections()
	for want, c := range map[string]struct {
		client *http.Client
		url    string
	}{
		"h2": {dir.client(), "https://" + front}, "h2c": {h2cClient, "http://" + front}, "rest": {newClient(t), "http://" + front},
	} {
		if got := sendRequest(t, c.client, "GET", c.url, ""); got.body != want {
			t.Errorf("response of chain %q, want %q", got.body, want)
		}
	}
	if got := requestWithALPN(t, dir, front, "http/1.1"); got != "http1" {
		t.Errorf("with only http/1.1 in ALPN: response of chain %q, want \"http1\"", got)
	}
}

// requestWithALPN sends a GET over HTTP/1.1 and TLS, offers protocols in ALPN, and returns the
// body.
func requestWithALPN(t *testing.T, certs *certDir, address string, protocols ...string) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certs.ca.Pool(), NextProtos: protocols}}
	defer transport.CloseIdleConnections()
	return sendRequest(t, &http.Client{Transport: transport, Timeout: waitTimeout}, "GET", "https://"+address, "").body
}

// TestFilterChainMatchesSource verifies that filter chains match the direct remote address of the
// socket and the proxied address of a PROXY protocol header.
func TestFilterChainMatchesSource(t *testing.T) {
	t.Parallel()
	front, proxyFront := freeAddress(), freeAddress()
	chains := func(sourceKey string) list {
		return list{
			filterChain("direct", object{sourceKey: list{"127.0.0.2/32"}}, nil),
			filterChain("proxied", object{"source_prefix_ranges": list{object{"address_prefix": "192.0.2.0", "prefix_len": 24}}}, nil),
			filterChain("port", object{"source_prefix_ranges": list{"192.0.2.7"}, "source_ports": list{99}}, nil),
			filterChain("rest", object{}, nil),
		}
	}
	listener := func(name, address, sourceKey string, extra object) object {
		return object{"name": name, "address": address, "filter_chains": chains(sourceKey)}.with(extra)
	}
	w := startWeft(t, setup{
		listeners: list{
			listener("front", front, "source_prefix_ranges", nil),
			listener("behind", proxyFront, "direct_source_prefix_ranges", object{"listener_filters": list{object{"type": "proxy_protocol"}}}),
		},
		tables: directTables("direct", "proxied", "port", "rest"),
	}.config())
	const header = "PROXY TCP4 %s 192.0.2.1 %d 80\r\n"
	for _, tt := range []struct{ address, from, header, want string }{
		{front, "127.0.0.1", "", "rest"},
		{front, "127.0.0.2", "", "direct"},
		{proxyFront, "127.0.0.1", fmt.Sprintf(header, "192.0.2.8", 99), "proxied"},
		{proxyFront, "127.0.0.1", fmt.Sprintf(header, "192.0.2.7", 99), "port"},
		{proxyFront, "127.0.0.1", fmt.Sprintf(header, "192.0.2.7", 98), ""},
		{proxyFront, "127.0.0.1", fmt.Sprintf(header, "198.51.100.1", 1), "rest"},
		{proxyFront, "127.0.0.2", fmt.Sprintf(header, "192.0.2.7", 99), "direct"},
	} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(tt.from)}, Timeout: waitTimeout}
		nc, err := d.Dial("tcp", tt.address)
		if err != nil {
			t.Fatal(err)
		}
		if got := requestBody(nc, tt.header+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); got != tt.want {
			t.Errorf("from %s with %q: response of chain %q, want %q", tt.from, tt.header, got, tt.want)
		}
	}
	if n := w.metric("weft_listener_connections_closed_total", "listener", "behind", "cause", "no_filter_chain"); n != 1 {
		t.Errorf("%v connections without a filter chain, want 1: the one with source port 98", n)
	}
}

// requestBody sends a request and returns the body of the response, or "" if there is no response.
func requestBody(nc net.Conn, request string) string {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := io.WriteString(nc, request); err != nil {
		return ""
	}
	response, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body) // the caller detects an incomplete body
	return string(body)
}

// TestFilterChainReloadFailsNoRequest verifies that no request fails while filter chains are added,
// changed and removed, and that connections of an unchanged chain stay open.
func TestFilterChainReloadFailsNoRequest(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	for _, name := range []string{"unchanged", "changed", "added"} {
		certs.issue(name, testpki.Spec{CommonName: name, DNS: []string{name + ".example"}})
	}
	front, admin := freeAddress(), freeAddress()
	chain := func(name string, extra object) object {
		return filterChain(name, object{"server_names": list{name + ".example"}}, object{"tls_context": certs.context(name, nil)}.with(extra))
	}
	config := func(n int) object {
		chains := []object{
			chain("unchanged", nil),
			chain("changed", object{"filters": list{object{"type": "proxy", "config": object{
				"downstream_protocol": "Http1,Http2", "router_config_name": "changed", "extend_config": object{"via": fmt.Sprintf("weft-%d", n)},
			}}}}),
		}
		if n%2 == 1 {
			chains = append([]object{chain("added", nil)}, chains...)
		}
		return setup{admin: admin, listeners: list{chainListener("front", front, nil, chains...)}, tables: directTables("unchanged", "changed", "added")}.config()
	}
	w := startWeft(t, config(0))
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var served, connections atomic.Int64
	for i := range 6 {
		name := []string{"unchanged", "unchanged", "changed"}[i%3]
		h2 := i >= 3
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: certs.ca.Pool(), ServerName: name + ".example"}, ForceAttemptHTTP2: h2,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				if name == "unchanged" {
					connections.Add(1)
				}
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			},
		}
		t.Cleanup(transport.CloseIdleConnections)
		c := &http.Client{Transport: transport, Timeout: waitTimeout}
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := tryRequest(t.Context(), c, "GET", "https://"+front+"/", "")
				if err != nil || resp.body != name {
					t.Errorf("%s, HTTP/2 %v: %+v, %v; want the body %s", name, h2, resp, err, name)
					return
				}
				served.Add(1)
			}
		})
	}
	for n := 1; n <= 12; n++ {
		w.reload(config(n))
		if n%2 == 1 {
			if got := requestWithSNI(t, certs, front, "added.example"); got != "added added" {
				t.Errorf("after %d changes the added chain responds %q, want \"added added\"", n, got)
			}
		} else if got := requestWithSNI(t, certs, front, "added.example"); got != "EOF" {
			t.Errorf("after %d changes the removed chain responds %q, want EOF", n, got)
		}
	}
	stop()
	clients.Wait()
	if n := connections.Load(); n != 4 {
		t.Errorf("4 clients of the unchanged chain opened %d connections, want 4", n)
	}
	if n := served.Load(); n < 200 {
		t.Errorf("served only %d requests, want at least 200", n)
	}
}

// TestRemovedFilterChainClosesTunnels verifies that a removed filter chain closes its tunnels at
// the end of the drain time, and that tunnels of other chains stay open.
func TestRemovedFilterChainClosesTunnels(t *testing.T) {
	t.Parallel()
	front, admin, echo := freeAddress(), freeAddress(), startTCPEcho(t)
	tunnel := func(name string, match object) object {
		return object{"name": name, "match": match, "filters": list{object{"type": "tcp_proxy", "config": object{"cluster": "echo"}}}}
	}
	config := func(chains ...object) object {
		return setup{
			server: object{"graceful_timeout": "1s"}, admin: admin,
			listeners: list{chainListener("front", front, nil, chains...)}, clusters: list{cluster("echo", nil, echo)},
		}.config()
	}
	removed, unchanged := tunnel("removed", object{"source_prefix_ranges": list{"127.0.0.2"}}), tunnel("unchanged", object{})
	w := startWeft(t, config(removed, unchanged))
	open := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: waitTimeout}
		nc, err := d.Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(2 * waitTimeout))
		return nc
	}
	echoes := func(nc net.Conn) bool {
		_, err := nc.Write([]byte("x"))
		n, rerr := nc.Read(make([]byte, 1))
		return err == nil && rerr == nil && n == 1
	}
	removedConn, unchangedConn := open("127.0.0.2"), open("127.0.0.1")
	if !echoes(removedConn) || !echoes(unchangedConn) {
		t.Fatal("the tunnels do not forward bytes")
	}
	w.reload(config(unchanged))
	if _, err := removedConn.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel of the removed chain stays open, want it closed")
	}
	if !echoes(unchangedConn) {
		t.Error("the tunnel of the unchanged chain closed")
	}
	eventually(t, "the force-close is counted", func() bool {
		return w.metric("weft_listener_connections_closed_total", "listener", "front", "cause", "drain_timeout") == 1
	})
}
