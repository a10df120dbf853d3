package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// filterChain returns a filter chain whose route responds with text.
func filterChain(name, match, text string, options ...string) string {
	return fmt.Sprintf(`{"name": %q, %s "filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": %q %s}}]}`,
		name, match, text, strings.Join(append([]string{""}, options...), ", "))
}

// chainSnapshot returns a configuration with one listener, these filter chains, and a route table
// for each text. A chain with the prefix "default:" becomes the default chain. Names lose trailing
// digits, so that several chains may have the same name, as control planes send them.
func chainSnapshot(t *testing.T, address, listener string, chains ...string) *config.Snapshot {
	t.Helper()
	var list, tables []string
	for _, text := range []string{"one", "two", "three"} {
		tables = append(tables, `{"router_config_name": "`+text+`", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+directRoute(text)+`]}]}`)
	}
	for _, c := range chains {
		if chain, ok := strings.CutPrefix(c, "default:"); ok {
			listener += `"default_filter_chain": ` + chain + `, `
		} else {
			list = append(list, c)
		}
	}
	config := parse(t, `{"servers": [{"graceful_timeout": "20s", "listeners": [{"name": "front", "address": "`+address+`", `+listener+`
		"filter_chains": [`+strings.Join(list, ", ")+`]}], "routers": [`+strings.Join(tables, ", ")+`]}]}`)
	for c := range config.Listeners[0].Chains() {
		c.Name = strings.TrimRight(c.Name, "0123456789")
	}
	return config
}

// Match criteria of the chains: connections from this machine, HTTP/1.1 connections, connections
// from another network, and all connections.
const (
	matchLocal = `"match": {"source_type": "SAME_IP_OR_LOOPBACK"},`
	matchHTTP  = `"match": {"application_protocols": ["http/1.1"]},`
	matchOther = `"match": {"source_prefix_ranges": ["192.0.2.0/24"]},`
	matchAll   = ``
)

func TestConnectionUsesMatchingFilterChain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chains []string
		want   string // "": the connection closes
	}{
		{"only chain", []string{filterChain("a", matchLocal, "one")}, "one"},
		{"more specific chain", []string{filterChain("a", matchAll, "one"), filterChain("b", matchLocal, "two")}, "two"},
		{"chain without criteria", []string{filterChain("a", matchAll, "one"), filterChain("b", matchOther, "two")}, "one"},
		{"application protocol", []string{filterChain("a", matchAll, "one"), filterChain("b", matchHTTP, "two")}, "two"},
		{"default chain", []string{filterChain("a", matchOther, "one"), "default:" + filterChain("b", "", "two")}, "two"},
		{"no matching chain", []string{filterChain("a", matchOther, "one")}, ""},
		{"no match after the first bytes", []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.apply(chainSnapshot(t, "127.0.0.1:0", "", tt.chains...))
			c := dialClient(t, r.address("front"))
			if tt.want != "" {
				if got := c.roundTrip(get("/")); got.body != tt.want {
					t.Errorf("response %q, want %q", got.body, tt.want)
				}
				return
			}
			c.send(get("/"))
			if !c.ended() {
				t.Error("the connection was not closed")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "no_filter_chain")
			r.await(0, "weft_listener_connections_active", "front")
		})
	}
}

// TestChainChangeDrainsOnlyItsConnections verifies that connections of a chain close when its
// engine options change, and stay open when its routes or other chains change.
func TestChainChangeDrainsOnlyItsConnections(t *testing.T) {
	const viaOption = `"extend_config": {"via": "weft"}`
	first, second := filterChain("mine", matchLocal, "one"), filterChain("rest", matchAll, "two")
	for _, tt := range []struct {
		name          string
		before, after []string
		staysOpen     bool
		want          string // response to the next request on the open connection
	}{
		{"no change", []string{first, second}, []string{first, second}, true, "one"},
		{"chain added", []string{first}, []string{first, second}, true, "one"},
		{"default chain added", []string{first}, []string{first, "default:" + second}, true, "one"},
		{"other chain removed", []string{first, second}, []string{first}, true, "one"},
		{"other chain changed", []string{first, second}, []string{first, filterChain("rest", matchAll, "two", viaOption)}, true, "one"},
		{"reordered", []string{first, second}, []string{second, first}, true, "one"},
		{"match changed, same name", []string{first, second}, []string{filterChain("mine", matchOther, "one"), second}, true, "one"},
		{"reordered, same names", []string{filterChain("x1", matchLocal, "one"), filterChain("x2", matchAll, "two")}, []string{filterChain("x1", matchAll, "two"), filterChain("x2", matchLocal, "one")}, true, "one"},
		{"routes changed", []string{first, second}, []string{filterChain("mine", matchLocal, "three"), second}, true, "three"},
		{"second chain next to the catch-all chain", []string{filterChain("", matchAll, "one")}, []string{filterChain("", matchAll, "one"), filterChain("", matchOther, "two")}, true, "one"},
		{"only the catch-all chain remains", []string{filterChain("", matchAll, "one"), filterChain("", matchOther, "two")}, []string{filterChain("", matchAll, "one")}, true, "one"},
		{"catch-all chain renamed", []string{filterChain("a", matchAll, "one")}, []string{filterChain("b", matchAll, "one")}, true, "one"},
		{"engine options changed", []string{first, second}, []string{filterChain("mine", matchLocal, "one", viaOption), second}, false, "one"},
		{"engine options changed and chain added", []string{filterChain("a", matchAll, "one")}, []string{filterChain("a", matchAll, "one", viaOption), filterChain("b", matchOther, "two")}, false, "one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, address := newRig(t), freeAddress(t)
			r.apply(chainSnapshot(t, address, "", tt.before...))
			c := dialClient(t, address)
			if got := c.roundTrip(get("/")); got.body != "one" {
				t.Fatalf("before the change: response %q, want %q", got.body, "one")
			}
			r.apply(chainSnapshot(t, address, "", tt.after...))
			got := c.roundTrip(get("/"))
			if got.body != tt.want || got.Close == tt.staysOpen {
				t.Errorf("after the change: response %q, Close %v; want %q, %v", got.body, got.Close, tt.want, !tt.staysOpen)
			}
			if tt.staysOpen {
				c.roundTrip(get("/"))
				r.await(1, "weft_listener_connections_active", "front")
			} else if !c.ended() {
				t.Error("the connection was not closed")
			}
		})
	}
}

// TestRemovedChainDrains verifies that the idle connections of a removed chain close, whichever
// chains remain.
func TestRemovedChainDrains(t *testing.T) {
	first, second := filterChain("mine", matchLocal, "one"), filterChain("rest", matchOther, "two")
	for name, change := range map[string]struct{ before, after []string }{
		"another chain remains":                     {[]string{first, second}, []string{second}},
		"replaced by another chain":                 {[]string{first}, []string{second}},
		"default chain":                             {[]string{second, "default:" + first}, []string{second}},
		"catch-all chain replaced by a named chain": {[]string{filterChain("", matchAll, "one")}, []string{first}},
	} {
		t.Run(name, func(t *testing.T) {
			before := change.before
			if name == "default chain" {
				before = []string{second, "default:" + filterChain("mine", "", "one")}
			}
			r, address := newRig(t), freeAddress(t)
			r.apply(chainSnapshot(t, address, "", before...))
			c := dialClient(t, address)
			if got := c.roundTrip(get("/")); got.body != "one" {
				t.Fatalf("before the change: response %q, want %q", got.body, "one")
			}
			r.apply(chainSnapshot(t, address, "", change.after...))
			if !c.ended() {
				t.Error("an idle connection was not closed")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "drained")
		})
	}
}

// TestNewConnectionOfRemovedChainServesFirstRequest verifies that a connection without a request
// serves its first request after its chain is removed: the client cannot know about the removal.
func TestNewConnectionOfRemovedChainServesFirstRequest(t *testing.T) {
	ca, dir := testpki.New(t), t.TempDir()
	leaf := ca.Issue(testpki.Spec{DNS: []string{"a.example"}})
	leaf.Write(t, dir, "a")
	tlsContext := `"tls_context": {"status": true, "cert_chain": "` + filepath.Join(dir, "a.pem") + `", "private_key": "` + filepath.Join(dir, "a.key") + `"}, `
	second := filterChain("rest", matchOther, "two")
	for name, tt := range map[string]struct {
		before, after []string
		secure        bool
	}{
		"another chain remains":     {[]string{filterChain("mine", matchLocal, "one"), second}, []string{second}, false},
		"replaced by another chain": {[]string{filterChain("mine", matchLocal, "one")}, []string{second}, false},
		"TLS":                       {[]string{filterChain("mine", tlsContext+matchLocal, "one"), second}, []string{second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, address := newRig(t), freeAddress(t)
			r.apply(chainSnapshot(t, address, "", tt.before...))
			c := dialClient(t, address)
			var out io.Writer = c
			if tt.secure {
				secure := tls.Client(c.TCPConn, &tls.Config{RootCAs: ca.Pool(), ServerName: "a.example"})
				if err := secure.Handshake(); err != nil {
					t.Fatal(err)
				}
				c.r.Reset(secure)
				out = secure
			}
			r.await(1, "weft_listener_connections_active", "front")
			r.apply(chainSnapshot(t, address, "", tt.after...))
			if _, err := io.WriteString(out, get("/")); err != nil {
				t.Fatal(err)
			}
			if got := c.read(get("/")); got.body != "one" {
				t.Errorf("response %q, want that of the removed chain", got.body)
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "drained")
		})
	}
}

// TestWaitingConnectionUsesNewChains verifies that a connection that waits for its first bytes
// chooses among the chains of the new configuration.
func TestWaitingConnectionUsesNewChains(t *testing.T) {
	r, address := newRig(t), freeAddress(t)
	for name, after := range map[string][]string{
		"several chains":       {filterChain("b", matchHTTP, "two"), filterChain("c", matchOther, "three")},
		"catch-all chain":      {filterChain("b", matchAll, "two")},
		"no inspection needed": {filterChain("b", matchLocal, "two"), filterChain("c", matchOther, "three")},
	} {
		r.apply(chainSnapshot(t, address, "", filterChain("a", matchHTTP, "one"), filterChain("c", matchOther, "three")))
		c := dialClient(t, address)
		r.await(1, "weft_listener_connections_active", "front")
		r.apply(chainSnapshot(t, address, "", after...))
		if got := c.roundTrip(get("/")); got.body != "two" {
			t.Errorf("%s: response %q, want that of the new configuration", name, got.body)
		}
		_ = c.Close()
		r.await(0, "weft_listener_connections_active", "front")
	}
}

func TestInspectTimeoutClosesConnection(t *testing.T) {
	chains := []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one"), filterChain("b", matchHTTP, "two"), filterChain("c", matchAll, "three")}
	for name, tt := range map[string]struct{ input, reason string }{
		"no bytes":              {"", "idle_timeout"},
		"partial ClientHello":   {"\x16\x03\x01\x01\x00\x01", "request_timeout"},
		"partial request":       {"GET /", "request_timeout"},
		"malformed ClientHello": {"\x16\x03\x01\x00\x06\x01\x00\x00\x02xx", "tls_handshake"},
		"oversized ClientHello": {"\x16\x03\x01\x00\x06\x01\xff\x00\x02xx", "tls_handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.apply(chainSnapshot(t, "127.0.0.1:0", `"listener_filters_timeout": "50ms", `, chains...))
			c := dialClient(t, r.address("front"))
			c.send(tt.input)
			if !c.ended() {
				t.Error("the connection was not closed")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", tt.reason)
		})
	}
}

// TestHalfCloseDuringInspection verifies that a client that half-closes gets a response only if it
// has sent a complete request.
func TestHalfCloseDuringInspection(t *testing.T) {
	r := newRig(t)
	r.apply(chainSnapshot(t, "127.0.0.1:0", "", filterChain("b", matchHTTP, "two"), filterChain("c", matchAll, "three", `"extend_config": {"allow_half_close": true}`)))
	for sent, wantResponse := range map[string]bool{"GET / HTTP/1.1": false, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": true, "\x16\x03": false} {
		c := dialClient(t, r.address("front"))
		c.send(sent)
		_ = c.CloseWrite()
		if _, err := c.r.ReadByte(); (err == nil) != wantResponse {
			t.Errorf("%q and a half-close: read error %v, want a response: %v", sent, err, wantResponse)
		}
	}
}

func TestChainsUseSeparateTLSContexts(t *testing.T) {
	ca := testpki.New(t)
	dir := t.TempDir()
	context := func(name string) string {
		leaf := ca.Issue(testpki.Spec{CommonName: name, DNS: []string{name}})
		leaf.Write(t, dir, name)
		return `"tls_context": {"status": true, "cert_chain": "` + filepath.Join(dir, name+".pem") + `", "private_key": "` + filepath.Join(dir, name+".key") + `"}, `
	}
	a, b := context("a.example"), context("b.example")
	r, address := newRig(t), freeAddress(t)
	chains := []string{
		filterChain("a", a+`"match": {"server_names": ["a.example"]},`, "one"),
		filterChain("b", b+`"match": {"server_names": ["*.example"]},`, "two"),
		filterChain("c", `"match": {"transport_protocol": "raw_buffer"},`, "three"),
	}
	r.apply(chainSnapshot(t, address, "", chains...))
	requestTo := func(name string) (*testClient, string) {
		c := dialClient(t, address)
		secure := tls.Client(c.TCPConn, &tls.Config{RootCAs: ca.Pool(), ServerName: name})
		if err := secure.Handshake(); err != nil {
			return nil, err.Error()
		}
		c.r.Reset(secure)
		if _, err := secure.Write([]byte(get("/"))); err != nil {
			t.Fatal(err)
		}
		return c, c.read(get("/")).body
	}
	conn, got := requestTo("a.example")
	if got != "one" {
		t.Fatalf("a.example: %s, want %s", got, "one")
	}
	for name, want := range map[string]string{"b.example": "two", "none.test": "EOF"} {
		if _, got := requestTo(name); got != want {
			t.Errorf("server name %s: response %s, want %s", name, got, want)
		}
	}
	if got := roundTrip(t, address, get("/")); got.body != "three" {
		t.Errorf("plaintext: response %q, want %q", got.body, "three")
	}
	r.await(1, "weft_listener_connections_closed_total", "front", "no_filter_chain")
	r.await(2, "weft_listener_tls_handshakes_total", "front", "ok")
	// A change of one chain keeps the TLS contexts and handshake counters of the others.
	chains[1] = filterChain("b", b+`"match": {"server_names": ["*.example"]},`, "two", `"extend_config": {"via": "weft"}`)
	r.apply(chainSnapshot(t, address, "", chains...))
	if _, got := requestTo("b.example"); got != "two" {
		t.Errorf("b.example after the change: %s, want %s", got, "two")
	}
	r.await(3, "weft_listener_tls_handshakes_total", "front", "ok")
	r.apply(chainSnapshot(t, address, "", chains[1:]...))
	if !conn.ended() {
		t.Error("a connection of a removed chain was not closed")
	}
}

func TestDescribeChains(t *testing.T) {
	r := newRig(t)
	r.apply(chainSnapshot(t, "127.0.0.1:0", "", filterChain("shop", matchHTTP, "one"), filterChain("", `"match": {"destination_port": 443, "server_names": ["a.example"]},`, "two"), "default:"+filterChain("", "", "one")))
	got := r.server.Describe()[0]
	want := []ChainStatus{
		{Chain: `"shop"`, Protocols: []string{"Http1"}, RouteTable: "one"},
		{Chain: "destination_port 443, server_names [a.example]", Protocols: []string{"Http1"}, RouteTable: "two"},
		{Chain: "(default)", Protocols: []string{"Http1"}, RouteTable: "one"},
	}
	if diff := cmp.Diff(want, got.Chains); diff != "" || got.RouteTable != "" {
		t.Errorf("Describe differs (-want +got):\n%s", diff)
	}
	if got := r.server.DescribeRoutes("one")[0].Listeners; len(got) != 1 {
		t.Errorf("listeners of the route table: %q, want one", got)
	}
}
