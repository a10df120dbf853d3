package peer

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/test/bench/certs"
)

// capabilities returns the features that the generated files use.
func capabilities() configjson.Capabilities {
	return configjson.Capabilities{
		Protocols:      []config.Protocol{config.HTTP1, config.HTTP2},
		NetworkFilters: []string{configjson.ProxyFilter},
		ClusterTypes:   []config.ClusterType{config.ClusterStatic},
		Policies:       []config.LBPolicy{config.RoundRobin},
	}
}

func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		Dir:         t.TempDir(),
		Listen:      netip.MustParseAddrPort("127.0.0.1:20001"),
		Admin:       netip.MustParseAddrPort("127.0.0.1:20002"),
		Origin:      netip.MustParseAddrPort("127.0.0.1:20003"),
		Connections: 100,
	}
}

func TestWeftConfigurationIsValid(t *testing.T) {
	for _, profile := range []bool{false, true} {
		c := testConfig(t)
		c.Profile = profile
		arguments, err := Weft("weft", "weft").configure(c)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, problems := configjson.Load(arguments[len(arguments)-1], capabilities(), configjson.Options{})
		if len(problems) > 0 {
			t.Fatalf("profile %v: %v, want none", profile, problems)
		}
		if got := snapshot.Listeners[0].Address; got != c.Listen.String() {
			t.Errorf("the listener has %v, want %v", got, c.Listen)
		}
		if got := snapshot.Clusters[0].MaxRequestsPerConn; got != 0 {
			t.Errorf("a connection to the origin ends after %d requests, want no limit", got)
		}
	}
}

func TestHTTPVersions(t *testing.T) {
	for _, sides := range []Sides{{ClientHTTP2: true, OriginHTTP2: true}, {ClientHTTP2: true}, {OriginHTTP2: true}, {ClientHTTP2: true, OriginHTTP2: true, GRPC: true}} {
		c := testConfig(t)
		c.HTTP = sides
		arguments, err := Weft("weft", "weft").configure(c)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, problems := configjson.Load(arguments[len(arguments)-1], capabilities(), configjson.Options{})
		if len(problems) > 0 {
			t.Fatalf("%v: %v, want none", sides, problems)
		}
		want := map[bool]config.Protocol{true: config.HTTP2, false: config.HTTP1}
		proxy := snapshot.Listeners[0].FilterChains[0].Proxy
		if proxy.Downstream[0] != want[sides.ClientHTTP2] || proxy.Upstream != want[sides.OriginHTTP2] {
			t.Errorf("%v: downstream protocol %v, upstream protocol %v; want %v, %v", sides, proxy.Downstream, proxy.Upstream, want[sides.ClientHTTP2], want[sides.OriginHTTP2])
		}
		for _, p := range []Program{NGINX("nginx"), HAProxy("haproxy")} {
			c.Dir = t.TempDir()
			arguments, err := p.configure(c)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(arguments[len(arguments)-1])
			if err != nil {
				t.Fatal(err)
			}
			listensHTTP2 := strings.Contains(string(text), " http2;") || strings.Contains(string(text), "backlog 4096 proto h2")
			if listensHTTP2 != sides.ClientHTTP2 {
				t.Errorf("%s, %v: listens for HTTP/2: %v\n%s", p.Name, sides, listensHTTP2, text)
			}
		}
	}
}

func TestCertificatesAreConfigured(t *testing.T) {
	for _, p := range []Program{Weft("weft", "weft"), NGINX("nginx"), HAProxy("haproxy")} {
		c := testConfig(t)
		c.HTTP, c.Certificates = Sides{MutualTLS: true}, certs.Dir(c.Dir)
		if err := c.Certificates.Write(); err != nil {
			t.Fatal(err)
		}
		arguments, err := p.configure(c)
		if err != nil {
			t.Fatal(err)
		}
		file := arguments[len(arguments)-1]
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.Certificates.CA()) {
			t.Errorf("%s has no CA:\n%s", p.Name, text)
		}
		if p.Name != "weft" {
			continue
		}
		snapshot, problems := configjson.Load(file, capabilities(), configjson.Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if certificates := snapshot.Listeners[0].FilterChains[0].TLS; len(certificates) != 1 || certificates[0].ClientAuth != config.RequireAndVerifyClientCert {
			t.Errorf("the listener of Weft has %+v, want one certificate and required client certificates", certificates)
		}
	}
}

func TestScaleSize(t *testing.T) {
	c, size := testConfig(t), Scale{Clusters: 40, Domains: 10, Routes: 200}
	before, target, err := WeftScale(c, size, false)
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := WeftScale(c, size, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"before": before, "after": after} {
		snapshot, problems := configjson.Parse(name, text, capabilities(), configjson.Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		hosts, addresses := 0, map[string]bool{}
		for _, cluster := range snapshot.Clusters {
			for _, h := range cluster.Hosts {
				hosts++
				addresses[h.Address] = true
			}
		}
		routes := 0
		for _, table := range snapshot.Routes {
			for _, h := range table.VirtualHosts {
				routes += len(h.Routes)
			}
		}
		if len(snapshot.Clusters) != 40 || hosts != 80 || len(addresses) != 80 || routes != 200 {
			t.Errorf("%s: %d clusters, %d hosts at %d addresses, %d routes, want 40, 80 at 80, 200",
				name, len(snapshot.Clusters), hosts, len(addresses), routes)
		}
	}
	if n := strings.Count(string(before), target); n != 1 {
		t.Errorf("%s is in %d routes, want 1", target, n)
	}
	equal := 0
	for equal < len(before) && equal < len(after) && before[equal] == after[equal] {
		equal++
	}
	if offset := strings.Index(string(before), target); equal < offset {
		t.Errorf("the files differ from byte %d, want from the route at %d", equal, offset)
	}
}

func TestAddressesAreConfigured(t *testing.T) {
	for _, p := range []Program{NGINX("nginx"), HAProxy("haproxy")} {
		c := testConfig(t)
		arguments, err := p.configure(c)
		if err != nil {
			t.Fatal(err)
		}
		file := arguments[len(arguments)-1]
		if filepath.Dir(file) != c.Dir {
			t.Errorf("%s: configuration %s, want it in %s", p.Name, file, c.Dir)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.Listen.String(), c.Origin.String()} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: the configuration has no %s:\n%s", p.Name, want, text)
			}
		}
	}
}

func TestPortsAreUnique(t *testing.T) {
	p := NewPorts()
	p.next = lastPort - 3 // to test the wraparound
	assigned := map[netip.AddrPort]bool{}
	for range 4 {
		ports, err := p.Take(2)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if assigned[port] {
				t.Errorf("%v assigned twice", port)
			}
			assigned[port] = true
			if !port.Addr().IsLoopback() || port.Port() < firstPort || port.Port() >= lastPort {
				t.Errorf("%v is not on loopback between %d and %d", port, firstPort, lastPort)
			}
		}
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(p.next)).String())
	if err != nil {
		t.Skip("the next port is in use:", err)
	}
	defer listener.Close()
	ports, err := p.Take(1)
	if err != nil || ports[0].String() == listener.Addr().String() {
		t.Errorf("Take = %v, %v while %v has a listener; want a port without a listener", ports, err, listener.Addr())
	}
}
