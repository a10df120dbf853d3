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

// link is a filter chain that answers with its text.
func link(name, match, text string, more ...string) string {
	return fmt.Sprintf(`{"name": %q, %s "filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": %q %s}}]}`,
		name, match, text, strings.Join(append([]string{""}, more...), ", "))
}

// linked is a configuration of one listener with these filter chains and a route table
// for each text. A chain that is put behind "default:" is the default one. Names lose
// the digits at their ends, so that several chains have one, as of control planes.
func linked(t *testing.T, address, listener string, chains ...string) *config.Snapshot {
	t.Helper()
	var list, tables []string
	for _, text := range []string{"one", "two", "three"} {
		tables = append(tables, `{"router_config_name": "`+text+`", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+direct(text)+`]}]}`)
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

func TestAConnectionTakesTheChainThatIsForIt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chains []string
		want   string // "": none
	}{
		{"the only one", []string{link("a", toLocal, "one")}, "one"},
		{"the more specific one", []string{link("a", toAll, "one"), link("b", toLocal, "two")}, "two"},
		{"the one that is not for others", []string{link("a", toAll, "one"), link("b", toOther, "two")}, "one"},
		{"by what it begins with", []string{link("a", toAll, "one"), link("b", toHTTP, "two")}, "two"},
		{"the default one", []string{link("a", toOther, "one"), "default:" + link("b", "", "two")}, "two"},
		{"none", []string{link("a", toOther, "one")}, ""},
		{"none, once it has begun", []string{link("a", `"match": {"server_names": ["a.example"]},`, "one")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.apply(linked(t, "127.0.0.1:0", "", tt.chains...))
			c := dialCaller(t, r.address("front"))
			if tt.want != "" {
				if got := c.ask(get("/")); got.body != tt.want {
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

// TestAChangeEndsOnlyWhatItIsAbout: connections of a chain end with it, or when its
// engine is another, and stay when others come, change or go.
func TestAChangeEndsOnlyWhatItIsAbout(t *testing.T) {
	const other = `"extend_config": {"via": "weft"}`
	mine, rest := link("mine", toLocal, "one"), link("rest", toAll, "two")
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
		{"another chain changes", []string{mine, rest}, []string{mine, link("rest", toAll, "two", other)}, true, "one"},
		{"the order", []string{mine, rest}, []string{rest, mine}, true, "one"},
		{"its match, under the same name", []string{mine, rest}, []string{link("mine", toOther, "one"), rest}, true, "one"},
		{"the order, under the same name", []string{link("x1", toLocal, "one"), link("x2", toAll, "two")}, []string{link("x1", toAll, "two"), link("x2", toLocal, "one")}, true, "one"},
		{"its routes", []string{mine, rest}, []string{link("mine", toLocal, "three"), rest}, true, "three"},
		{"a second one beside one for all", []string{link("", toAll, "one")}, []string{link("", toAll, "one"), link("", toOther, "two")}, true, "one"},
		{"one for all is left", []string{link("", toAll, "one"), link("", toOther, "two")}, []string{link("", toAll, "one")}, true, "one"},
		{"the name of one for all", []string{link("a", toAll, "one")}, []string{link("b", toAll, "one")}, true, "one"},
		{"its engine", []string{mine, rest}, []string{link("mine", toLocal, "one", other), rest}, false, "one"},
		{"its engine, and another comes", []string{link("a", toAll, "one")}, []string{link("a", toAll, "one", other), link("b", toOther, "two")}, false, "one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, address := newRig(t), free(t)
			r.apply(linked(t, address, "", tt.before...))
			c := dialCaller(t, address)
			if got := c.ask(get("/")); got.body != "one" {
				t.Fatalf("before: %q", got.body)
			}
			r.apply(linked(t, address, "", tt.after...))
			got := c.ask(get("/"))
			if got.body != tt.answer || got.Close == tt.stays {
				t.Errorf("after: %q, Close %v; want %q, %v", got.body, got.Close, tt.answer, !tt.stays)
			}
			if tt.stays {
				c.ask(get("/"))
				r.await(1, "weft_listener_connections_active", "front")
			} else if !c.ended() {
				t.Error("the connection goes on")
			}
		})
	}
}

// TestAChainThatLeavesDrains: its idle connections end, whatever the others do, and what
// it referred to is given back.
func TestAChainThatLeavesDrains(t *testing.T) {
	mine, rest := link("mine", toLocal, "one"), link("rest", toOther, "two")
	for name, change := range map[string]struct{ before, after []string }{
		"beside another":             {[]string{mine, rest}, []string{rest}},
		"in the place of another":    {[]string{mine}, []string{rest}},
		"the default one":            {[]string{rest, "default:" + mine}, []string{rest}},
		"one for all, now with name": {[]string{link("", toAll, "one")}, []string{mine}},
	} {
		t.Run(name, func(t *testing.T) {
			before := change.before
			if name == "the default one" {
				before = []string{rest, "default:" + link("mine", "", "one")}
			}
			r, address := newRig(t), free(t)
			r.apply(linked(t, address, "", before...))
			c := dialCaller(t, address)
			if got := c.ask(get("/")); got.body != "one" {
				t.Fatalf("before: %q", got.body)
			}
			r.apply(linked(t, address, "", change.after...))
			if !c.ended() {
				t.Error("an idle connection goes on")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", "drained")
		})
	}
}

// TestANewConnectionOfAChainThatLeavesHasItsFirstRequest: its caller cannot know that the
// chain has left, and takes a new connection for a sound one.
func TestANewConnectionOfAChainThatLeavesHasItsFirstRequest(t *testing.T) {
	ca, dir := testpki.New(t), t.TempDir()
	leaf := ca.Issue(testpki.Spec{DNS: []string{"a.example"}})
	leaf.Write(t, dir, "a")
	overTLS := `"tls_context": {"status": true, "cert_chain": "` + filepath.Join(dir, "a.pem") + `", "private_key": "` + filepath.Join(dir, "a.key") + `"}, `
	rest := link("rest", toOther, "two")
	for name, tt := range map[string]struct {
		before, after []string
		secure        bool
	}{
		"beside another":          {[]string{link("mine", toLocal, "one"), rest}, []string{rest}, false},
		"in the place of another": {[]string{link("mine", toLocal, "one")}, []string{rest}, false},
		"over TLS":                {[]string{link("mine", overTLS+toLocal, "one"), rest}, []string{rest}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, address := newRig(t), free(t)
			r.apply(linked(t, address, "", tt.before...))
			c := dialCaller(t, address)
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
			r.apply(linked(t, address, "", tt.after...))
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

// TestAConnectionChoosesAmongWhatIsInForceWhenItBegins: not when it was accepted.
func TestAConnectionChoosesAmongWhatIsInForceWhenItBegins(t *testing.T) {
	r, address := newRig(t), free(t)
	for name, after := range map[string][]string{
		"chains":             {link("b", toHTTP, "two"), link("c", toOther, "three")},
		"one for all":        {link("b", toAll, "two")},
		"nothing to look at": {link("b", toLocal, "two"), link("c", toOther, "three")},
	} {
		r.apply(linked(t, address, "", link("a", toHTTP, "one"), link("c", toOther, "three")))
		c := dialCaller(t, address)
		r.await(1, "weft_listener_connections_active", "front")
		r.apply(linked(t, address, "", after...))
		if got := c.ask(get("/")); got.body != "two" {
			t.Errorf("%s: answered with %q, want that of the new configuration", name, got.body)
		}
		_ = c.Close()
		r.await(0, "weft_listener_connections_active", "front")
	}
}

func TestAConnectionThatDoesNotShowWhatItIsEnds(t *testing.T) {
	chains := []string{link("a", `"match": {"server_names": ["a.example"]},`, "one"), link("b", toHTTP, "two"), link("c", toAll, "three")}
	for name, tt := range map[string]struct{ sent, cause string }{
		"it says nothing":      {"", "idle_timeout"},
		"a part of a hello":    {"\x16\x03\x01\x01\x00\x01", "request_timeout"},
		"a part of a request":  {"GET /", "request_timeout"},
		"a hello that is none": {"\x16\x03\x01\x00\x06\x01\x00\x00\x02xx", "tls_handshake"},
		"a hello too large":    {"\x16\x03\x01\x00\x06\x01\xff\x00\x02xx", "tls_handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.apply(linked(t, "127.0.0.1:0", `"listener_filters_timeout": "50ms", `, chains...))
			c := dialCaller(t, r.address("front"))
			c.send(tt.sent)
			if !c.ended() {
				t.Error("the connection goes on")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", tt.cause)
		})
	}
}

// TestAPeerThatEndsEarlyIsServedAsFarAsItSpoke: what it said is not a request, and no
// handshake.
func TestAPeerThatEndsEarlyIsServedAsFarAsItSpoke(t *testing.T) {
	r := newRig(t)
	r.apply(linked(t, "127.0.0.1:0", "", link("b", toHTTP, "two"), link("c", toAll, "three", `"extend_config": {"allow_half_close": true}`)))
	for sent, answered := range map[string]bool{"GET / HTTP/1.1": false, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": true, "\x16\x03": false} {
		c := dialCaller(t, r.address("front"))
		c.send(sent)
		_ = c.CloseWrite()
		if _, err := c.r.ReadByte(); (err == nil) != answered {
			t.Errorf("%q, then the end: read fails with %v, want an answer: %v", sent, err, answered)
		}
	}
}

func TestChainsHaveTLSOfTheirOwn(t *testing.T) {
	ca := testpki.New(t)
	dir := t.TempDir()
	context := func(name string) string {
		leaf := ca.Issue(testpki.Spec{CommonName: name, DNS: []string{name}})
		leaf.Write(t, dir, name)
		return `"tls_context": {"status": true, "cert_chain": "` + filepath.Join(dir, name+".pem") + `", "private_key": "` + filepath.Join(dir, name+".key") + `"}, `
	}
	a, b := context("a.example"), context("b.example")
	r, address := newRig(t), free(t)
	chains := []string{
		link("a", a+`"match": {"server_names": ["a.example"]},`, "one"),
		link("b", b+`"match": {"server_names": ["*.example"]},`, "two"),
		link("c", `"match": {"transport_protocol": "raw_buffer"},`, "three"),
	}
	r.apply(linked(t, address, "", chains...))
	over := func(name string) (*caller, string) {
		c := dialCaller(t, address)
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
	if got := ask(t, address, get("/")); got.body != "three" {
		t.Errorf("plaintext: %q", got.body)
	}
	r.await(1, "weft_listener_connections_closed_total", "front", "no_filter_chain")
	r.await(2, "weft_listener_tls_handshakes_total", "front", "ok")
	// A change of one chain leaves the handshakes of the others, and their count.
	chains[1] = link("b", b+`"match": {"server_names": ["*.example"]},`, "two", `"extend_config": {"via": "weft"}`)
	r.apply(linked(t, address, "", chains...))
	if _, got := over("b.example"); got != "two" {
		t.Errorf("b.example after the change: %s", got)
	}
	r.await(3, "weft_listener_tls_handshakes_total", "front", "ok")
	r.apply(linked(t, address, "", chains[1:]...))
	if !open.ended() {
		t.Error("a connection of a chain that left goes on")
	}
}

func TestChainsAreDescribedForPeople(t *testing.T) {
	r := newRig(t)
	r.apply(linked(t, "127.0.0.1:0", "", link("shop", toHTTP, "one"), link("", `"match": {"destination_port": 443, "server_names": ["a.example"]},`, "two"), "default:"+link("", "", "one")))
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
