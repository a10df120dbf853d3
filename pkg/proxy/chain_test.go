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

// filterChain is a filter chain that answers with its text.
func filterChain(name, match, text string, more ...string) string {
	return fmt.Sprintf(`{"name": %q, %s "filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": %q %s}}]}`,
		name, match, text, strings.Join(append([]string{""}, more...), ", "))
}

// chainSnapshot is a configuration of one listener with these filter chains and a route table
// for each text. A chain that is put behind "default:" is the default one. Names lose
// the digits at their ends, so that several chains have one, as of control planes.
func chainSnapshot(t *testing.T, address, listener string, chains ...string) *config.Snapshot {
	t.Helper()
	var list, tables []string
	for _, text := range []string{"one", "two", "three"} {
		tables = append(tables, `{"router_config_name": "`+text+`", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+directRoute(text)+`]}]}`)
	}
	for _, c := range chains {
		if rest, ok := strings.CutPrefix(c, "default:"); ok {
			listener += `"default_filter_chain": ` + rest + `, `
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

// What chains are for: callers whose port is from this machine, and whoever speaks HTTP.
const (
	toLocal = `"match": {"source_type": "SAME_IP_OR_LOOPBACK"},`
	toHTTP  = `"match": {"application_protocols": ["http/1.1"]},`
	toOther = `"match": {"source_prefix_ranges": ["192.0.2.0/24"]},`
	toAll   = ``
)

func TestConnectionUsesMatchingFilterChain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chains []string
		want   string // "": none
	}{
		{"the only one", []string{filterChain("a", toLocal, "one")}, "one"},
		{"the more specific one", []string{filterChain("a", toAll, "one"), filterChain("b", toLocal, "two")}, "two"},
		{"the one that is not for others", []string{filterChain("a", toAll, "one"), filterChain("b", toOther, "two")}, "one"},
		{"by what it begins with", []string{filterChain("a", toAll, "one"), filterChain("b", toHTTP, "two")}, "two"},
		{"the default one", []string{filterChain("a", toOther, "one"), "default:" + filterChain("b", "", "two")}, "two"},
		{"none", []string{filterChain("a", toOther, "one")}, ""},
		{"none, once it has begun", []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.apply(chainSnapshot(t, "127.0.0.1:0", "", tt.chains...))
			c := dialClient(t, r.address("front"))
			if tt.want != "" {
				if got := c.roundTrip(get("/")); got.body != tt.want {
					t.Errorf("answered with %q, want %q", got.body, tt.want)
				}
				return
			}
			c.send(get("/"))
			if !c.ended() {
				t.Error("the connection goes on")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "no_filter_chain")
			r.await(0, "weft_listener_connections_active", "front")
		})
	}
}

// TestChainChangeDrainsOnlyItsConnections: connections of a chain end with it, or when its
// engine is another, and stay when others come, change or go.
func TestChainChangeDrainsOnlyItsConnections(t *testing.T) {
	const other = `"extend_config": {"via": "weft"}`
	mine, rest := filterChain("mine", toLocal, "one"), filterChain("rest", toAll, "two")
	for _, tt := range []struct {
		name          string
		before, after []string
		stays         bool
		answer        string // to the next request, of a connection that takes part in one more
	}{
		{"nothing", []string{mine, rest}, []string{mine, rest}, true, "one"},
		{"another chain comes", []string{mine}, []string{mine, rest}, true, "one"},
		{"another chain comes that is the default", []string{mine}, []string{mine, "default:" + rest}, true, "one"},
		{"another chain goes", []string{mine, rest}, []string{mine}, true, "one"},
		{"another chain changes", []string{mine, rest}, []string{mine, filterChain("rest", toAll, "two", other)}, true, "one"},
		{"the order", []string{mine, rest}, []string{rest, mine}, true, "one"},
		{"its match, under the same name", []string{mine, rest}, []string{filterChain("mine", toOther, "one"), rest}, true, "one"},
		{"the order, under the same name", []string{filterChain("x1", toLocal, "one"), filterChain("x2", toAll, "two")}, []string{filterChain("x1", toAll, "two"), filterChain("x2", toLocal, "one")}, true, "one"},
		{"its routes", []string{mine, rest}, []string{filterChain("mine", toLocal, "three"), rest}, true, "three"},
		{"a second one beside one for all", []string{filterChain("", toAll, "one")}, []string{filterChain("", toAll, "one"), filterChain("", toOther, "two")}, true, "one"},
		{"one for all is left", []string{filterChain("", toAll, "one"), filterChain("", toOther, "two")}, []string{filterChain("", toAll, "one")}, true, "one"},
		{"the name of one for all", []string{filterChain("a", toAll, "one")}, []string{filterChain("b", toAll, "one")}, true, "one"},
		{"its engine", []string{mine, rest}, []string{filterChain("mine", toLocal, "one", other), rest}, false, "one"},
		{"its engine, and another comes", []string{filterChain("a", toAll, "one")}, []string{filterChain("a", toAll, "one", other), filterChain("b", toOther, "two")}, false, "one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, address := newRig(t), freeAddress(t)
			r.apply(chainSnapshot(t, address, "", tt.before...))
			c := dialClient(t, address)
			if got := c.roundTrip(get("/")); got.body != "one" {
				t.Fatalf("before: %q", got.body)
			}
			r.apply(chainSnapshot(t, address, "", tt.after...))
			got := c.roundTrip(get("/"))
			if got.body != tt.answer || got.Close == tt.stays {
				t.Errorf("after: %q, Close %v; want %q, %v", got.body, got.Close, tt.answer, !tt.stays)
			}
			if tt.stays {
				c.roundTrip(get("/"))
				r.await(1, "weft_listener_connections_active", "front")
			} else if !c.ended() {
				t.Error("the connection goes on")
			}
		})
	}
}

// TestRemovedChainDrains: its idle connections end, whatever the others do, and what
// it referred to is given back.
func TestRemovedChainDrains(t *testing.T) {
	mine, rest := filterChain("mine", toLocal, "one"), filterChain("rest", toOther, "two")
	for name, change := range map[string]struct{ before, after []string }{
		"beside another":             {[]string{mine, rest}, []string{rest}},
		"in the place of another":    {[]string{mine}, []string{rest}},
		"the default one":            {[]string{rest, "default:" + mine}, []string{rest}},
		"one for all, now with name": {[]string{filterChain("", toAll, "one")}, []string{mine}},
	} {
		t.Run(name, func(t *testing.T) {
			before := change.before
			if name == "the default one" {
				before = []string{rest, "default:" + filterChain("mine", "", "one")}
			}
			r, address := newRig(t), freeAddress(t)
			r.apply(chainSnapshot(t, address, "", before...))
			c := dialClient(t, address)
			if got := c.roundTrip(get("/")); got.body != "one" {
				t.Fatalf("before: %q", got.body)
			}
			r.apply(chainSnapshot(t, address, "", change.after...))
			if !c.ended() {
				t.Error("an idle connection goes on")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "drained")
		})
	}
}

// TestNewConnectionOfRemovedChainServesFirstRequest: its caller cannot know that the
// chain has left, and takes a new connection for a sound one.
func TestNewConnectionOfRemovedChainServesFirstRequest(t *testing.T) {
	ca, dir := testpki.New(t), t.TempDir()
	leaf := ca.Issue(testpki.Spec{DNS: []string{"a.example"}})
	leaf.Write(t, dir, "a")
	overTLS := `"tls_context": {"status": true, "cert_chain": "` + filepath.Join(dir, "a.pem") + `", "private_key": "` + filepath.Join(dir, "a.key") + `"}, `
	rest := filterChain("rest", toOther, "two")
	for name, tt := range map[string]struct {
		before, after []string
		secure        bool
	}{
		"beside another":          {[]string{filterChain("mine", toLocal, "one"), rest}, []string{rest}, false},
		"in the place of another": {[]string{filterChain("mine", toLocal, "one")}, []string{rest}, false},
		"over TLS":                {[]string{filterChain("mine", overTLS+toLocal, "one"), rest}, []string{rest}, true},
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
				t.Errorf("answered with %q, want the last answer of the chain that left", got.body)
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "drained")
		})
	}
}

// TestWaitingConnectionUsesNewChains: not when it was accepted.
func TestWaitingConnectionUsesNewChains(t *testing.T) {
	r, address := newRig(t), freeAddress(t)
	for name, after := range map[string][]string{
		"chains":             {filterChain("b", toHTTP, "two"), filterChain("c", toOther, "three")},
		"one for all":        {filterChain("b", toAll, "two")},
		"nothing to look at": {filterChain("b", toLocal, "two"), filterChain("c", toOther, "three")},
	} {
		r.apply(chainSnapshot(t, address, "", filterChain("a", toHTTP, "one"), filterChain("c", toOther, "three")))
		c := dialClient(t, address)
		r.await(1, "weft_listener_connections_active", "front")
		r.apply(chainSnapshot(t, address, "", after...))
		if got := c.roundTrip(get("/")); got.body != "two" {
			t.Errorf("%s: answered with %q, want that of the new configuration", name, got.body)
		}
		_ = c.Close()
		r.await(0, "weft_listener_connections_active", "front")
	}
}

func TestInspectTimeoutClosesConnection(t *testing.T) {
	chains := []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one"), filterChain("b", toHTTP, "two"), filterChain("c", toAll, "three")}
	for name, tt := range map[string]struct{ sent, cause string }{
		"it says nothing":      {"", "idle_timeout"},
		"a part of a hello":    {"\x16\x03\x01\x01\x00\x01", "request_timeout"},
		"a part of a request":  {"GET /", "request_timeout"},
		"a hello that is none": {"\x16\x03\x01\x00\x06\x01\x00\x00\x02xx", "tls_handshake"},
		"a hello too large":    {"\x16\x03\x01\x00\x06\x01\xff\x00\x02xx", "tls_handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.apply(chainSnapshot(t, "127.0.0.1:0", `"listener_filters_timeout": "50ms", `, chains...))
			c := dialClient(t, r.address("front"))
			c.send(tt.sent)
			if !c.ended() {
				t.Error("the connection goes on")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", tt.cause)
		})
	}
}

// TestHalfCloseDuringInspection: what it said is not a request, and no
// handshake.
func TestHalfCloseDuringInspection(t *testing.T) {
	r := newRig(t)
	r.apply(chainSnapshot(t, "127.0.0.1:0", "", filterChain("b", toHTTP, "two"), filterChain("c", toAll, "three", `"extend_config": {"allow_half_close": true}`)))
	for sent, answered := range map[string]bool{"GET / HTTP/1.1": false, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": true, "\x16\x03": false} {
		c := dialClient(t, r.address("front"))
		c.send(sent)
		_ = c.CloseWrite()
		if _, err := c.r.ReadByte(); (err == nil) != answered {
			t.Errorf("%q, then the end: read fails with %v, want an answer: %v", sent, err, answered)
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
	over := func(name string) (*testClient, string) {
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
	open, got := over("a.example")
	if got != "one" {
		t.Fatalf("a.example: %s", got)
	}
	for name, want := range map[string]string{"b.example": "two", "none.test": "EOF"} {
		if _, got := over(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := roundTrip(t, address, get("/")); got.body != "three" {
		t.Errorf("plaintext: %q", got.body)
	}
	r.await(1, "weft_listener_connections_closed_total", "front", "no_filter_chain")
	r.await(2, "weft_listener_tls_handshakes_total", "front", "ok")
	// A change of one chain leaves the handshakes of the others, and their count.
	chains[1] = filterChain("b", b+`"match": {"server_names": ["*.example"]},`, "two", `"extend_config": {"via": "weft"}`)
	r.apply(chainSnapshot(t, address, "", chains...))
	if _, got := over("b.example"); got != "two" {
		t.Errorf("b.example after the change: %s", got)
	}
	r.await(3, "weft_listener_tls_handshakes_total", "front", "ok")
	r.apply(chainSnapshot(t, address, "", chains[1:]...))
	if !open.ended() {
		t.Error("a connection of a chain that left goes on")
	}
}

func TestDescribeChains(t *testing.T) {
	r := newRig(t)
	r.apply(chainSnapshot(t, "127.0.0.1:0", "", filterChain("shop", toHTTP, "one"), filterChain("", `"match": {"destination_port": 443, "server_names": ["a.example"]},`, "two"), "default:"+filterChain("", "", "one")))
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
		t.Errorf("the listeners of a route table are %q", got)
	}
}
