package chainmatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// connectionWith returns a plaintext connection between two machines, modified by change unless
// that is nil.
func connectionWith(change func(*Connection)) Connection {
	c := Connection{
		Destination: addrPort("10.1.2.3:443"), Source: addrPort("192.168.7.9:40000"), DirectSource: netip.MustParseAddr("192.168.7.9"),
		Transport: config.RawBuffer,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func handshake(name string, protocols ...string) Connection {
	return connectionWith(func(c *Connection) { c.Transport, c.ServerName, c.Protocols = config.TransportTLS, name, protocols })
}

func TestMostSpecificChainWins(t *testing.T) {
	type match = config.ChainMatch
	for _, tt := range []struct {
		name    string
		matches []match
		c       Connection
		want    int
	}{
		{"no chain", nil, connectionWith(nil), -1},
		{"no criterion matches all", []match{{}}, connectionWith(nil), 0},
		{"no criterion matches a connection without an address", []match{{}}, Connection{}, 0},

		{"port before no criterion", []match{{}, {DestinationPort: 443}}, connectionWith(nil), 1},
		{"another port", []match{{}, {DestinationPort: 80}}, connectionWith(nil), 0},
		{"only another port", []match{{DestinationPort: 80}}, connectionWith(nil), -1},
		{"port before range", []match{{DestinationPort: 443}, {DestinationRanges: prefixes("10.1.2.3/32")}}, connectionWith(nil), 0},

		{"the longest range", []match{{DestinationRanges: prefixes("10.0.0.0/8")}, {DestinationRanges: prefixes("10.1.2.0/24", "10.9.0.0/16")}, {}}, connectionWith(nil), 1},
		{"a shorter range", []match{{DestinationRanges: prefixes("10.0.0.0/8")}, {DestinationRanges: prefixes("10.1.3.0/24")}, {}}, connectionWith(nil), 0},
		{"no matching range", []match{{DestinationRanges: prefixes("11.0.0.0/8")}, {}}, connectionWith(nil), 1},
		{"range with host bits", []match{{DestinationRanges: prefixes("10.255.255.255/8")}}, connectionWith(nil), 0},
		{"IPv6 range does not match IPv4", []match{{DestinationRanges: prefixes("::/0")}, {DestinationRanges: prefixes("0.0.0.0/0")}}, connectionWith(nil), 1},
		{"IPv4-mapped range", []match{{DestinationRanges: prefixes("::ffff:10.0.0.0/104")}}, connectionWith(nil), 0},
		{"IPv4-mapped address", []match{{DestinationRanges: prefixes("10.0.0.0/8")}},
			connectionWith(func(c *Connection) { c.Destination = addrPort("[::ffff:10.1.1.1]:1") }), 0},
		{"IPv6 range", []match{{}, {DestinationRanges: prefixes("fe80::/10")}},
			connectionWith(func(c *Connection) { c.Destination = addrPort("[fe80::1%eth0]:1") }), 1},
		{"no address matches no range", []match{{DestinationRanges: prefixes("0.0.0.0/0")}}, Connection{}, -1},

		{"exact name before wildcard", []match{{ServerNames: []string{"*.example.com"}}, {ServerNames: []string{"a.example.com"}}}, handshake("a.example.com"), 1},
		{"the longest wildcard", []match{{ServerNames: []string{"*.com"}}, {ServerNames: []string{"*.example.com"}}, {}}, handshake("a.b.example.com"), 1},
		{"a shorter wildcard", []match{{ServerNames: []string{"*.com"}}, {ServerNames: []string{"*.a.example.com"}}, {}}, handshake("b.example.com"), 0},
		{"wildcard does not match its suffix", []match{{ServerNames: []string{"*.example.com"}}, {}}, handshake("example.com"), 1},
		{"one of several names", []match{{ServerNames: []string{"a.example", "b.example"}}, {}}, handshake("b.example"), 0},
		{"another name", []match{{ServerNames: []string{"a.example"}}}, handshake("b.example"), -1},
		{"no name", []match{{ServerNames: []string{"a.example", "*.b.example"}}}, handshake(""), -1},
		{"case of a configured name", []match{{ServerNames: []string{"A.Example"}}}, handshake("a.example"), 0},

		{"TLS", []match{{TransportProtocol: config.RawBuffer}, {TransportProtocol: config.TransportTLS}}, handshake(""), 1},
		{"plaintext", []match{{TransportProtocol: config.RawBuffer}, {TransportProtocol: config.TransportTLS}}, connectionWith(nil), 0},
		{"transport protocol before no criterion", []match{{}, {TransportProtocol: config.RawBuffer}}, connectionWith(nil), 1},

		{"client's preference", []match{{ApplicationProtocols: []string{"http/1.1"}}, {ApplicationProtocols: []string{"h2"}}}, handshake("", "h2", "http/1.1"), 1},
		{"client's second preference", []match{{ApplicationProtocols: []string{"http/1.1"}}, {}}, handshake("", "h2", "http/1.1"), 0},
		{"none of the client's protocols", []match{{ApplicationProtocols: []string{"http/1.1"}}, {}}, handshake("", "h2"), 1},
		{"protocol detected in plaintext", []match{{}, {ApplicationProtocols: []string{"h2c"}}}, connectionWith(func(c *Connection) { c.Protocols = []string{"h2c"} }), 1},

		{"direct source", []match{{DirectSourceRanges: prefixes("192.168.0.0/16")}, {DirectSourceRanges: prefixes("10.0.0.0/8")}},
			connectionWith(func(c *Connection) { c.DirectSource = netip.MustParseAddr("10.0.0.9") }), 1},
		{"direct source before source type", []match{{SourceType: config.ExternalSource}, {DirectSourceRanges: prefixes("0.0.0.0/0")}}, connectionWith(nil), 1},

		{"another machine", []match{{SourceType: config.LocalSource}, {SourceType: config.ExternalSource}}, connectionWith(nil), 1},
		{"loopback", []match{{SourceType: config.LocalSource}, {SourceType: config.ExternalSource}},
			connectionWith(func(c *Connection) { c.Source = addrPort("127.0.0.1:1") }), 0},
		{"IPv6 loopback", []match{{SourceType: config.LocalSource}, {}}, connectionWith(func(c *Connection) { c.Source = addrPort("[::1]:1") }), 0},
		{"the same address", []match{{SourceType: config.LocalSource}, {}}, connectionWith(func(c *Connection) { c.Source = addrPort("10.1.2.3:1") }), 0},
		{"a unix socket", []match{{SourceType: config.LocalSource}, {}}, Connection{}, 0},
		{"proxied connection from a unix socket of another machine", []match{{SourceType: config.LocalSource}, {}}, Connection{DirectSource: netip.MustParseAddr("192.0.2.1")}, 1},
		{"proxied connection from a unix socket of this machine", []match{{SourceType: config.LocalSource}, {}}, Connection{DirectSource: netip.MustParseAddr("127.0.0.1")}, 0},
		{"source type before no criterion", []match{{}, {SourceType: config.ExternalSource}}, connectionWith(nil), 1},
		{"the other source type", []match{{SourceType: config.LocalSource}, {}}, connectionWith(nil), 1},

		{"longest source range", []match{{SourceRanges: prefixes("192.168.0.0/16")}, {SourceRanges: prefixes("192.168.7.0/24")}, {}}, connectionWith(nil), 1},
		{"a source port", []match{{}, {SourcePorts: []uint16{1, 40000}}}, connectionWith(nil), 1},
		{"another source port", []match{{}, {SourcePorts: []uint16{1}}}, connectionWith(nil), 0},

		{"no backtracking from a port", []match{{DestinationPort: 443, ServerNames: []string{"a.example"}}, {}}, handshake("b.example"), -1},
		{"no backtracking from a range", []match{{DestinationRanges: prefixes("10.1.0.0/16"), SourcePorts: []uint16{1}}, {DestinationRanges: prefixes("10.0.0.0/8")}}, connectionWith(nil), -1},
		{"no backtracking from a name", []match{{ServerNames: []string{"a.b.example"}, ApplicationProtocols: []string{"h2"}}, {ServerNames: []string{"*.b.example"}}},
			handshake("a.b.example", "http/1.1"), -1},
		{"no backtracking from a transport protocol", []match{{TransportProtocol: config.TransportTLS, SourceType: config.LocalSource}, {}}, handshake(""), -1},
		{"no backtracking from an application protocol", []match{{ApplicationProtocols: []string{"h2"}, SourcePorts: []uint16{1}}, {ApplicationProtocols: []string{"http/1.1"}}},
			handshake("", "h2", "http/1.1"), -1},
		{"no backtracking from a source type", []match{{SourceType: config.ExternalSource, SourcePorts: []uint16{1}}, {}}, connectionWith(nil), -1},
		{"no backtracking from a source range", []match{{SourceRanges: prefixes("192.168.7.0/24"), SourcePorts: []uint16{1}}, {SourceRanges: prefixes("192.168.0.0/16")}}, connectionWith(nil), -1},

		{"several criteria", []match{
			{ServerNames: []string{"a.example"}, TransportProtocol: config.TransportTLS},
			{ServerNames: []string{"a.example"}, TransportProtocol: config.TransportTLS, ApplicationProtocols: []string{"h2"}},
			{ServerNames: []string{"a.example"}, TransportProtocol: config.TransportTLS, ApplicationProtocols: []string{"h2"}, SourceRanges: prefixes("192.168.7.9/32")},
		}, handshake("a.example", "h2"), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Compile(tt.matches)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Match(&tt.c); got != tt.want {
				t.Errorf("Match(%+v) = %d, want %d", tt.c, got, tt.want)
			}
		})
	}
}

func TestConflictingChainsAreRejected(t *testing.T) {
	type match = config.ChainMatch
	for _, tt := range []struct {
		name     string
		matches  []match
		conflict string // "": no conflict
	}{
		{"two chains without criteria", []match{{}, {}}, "all connections that no other filter chain matches"},
		{"the same port", []match{{DestinationPort: 1}, {}, {DestinationPort: 1}}, "destination_port 1"},
		{"a name in common", []match{{ServerNames: []string{"a", "b"}}, {ServerNames: []string{"c", "b"}}}, `server_names "b"`},
		{"a name in another case", []match{{ServerNames: []string{"a"}}, {ServerNames: []string{"A"}}}, `server_names "a"`},
		{"a wildcard in common", []match{{ServerNames: []string{"*.b"}}, {ServerNames: []string{"*.b"}}}, `server_names "*.b"`},
		{"equal ranges in different notation", []match{{SourceRanges: prefixes("10.1.2.3/8")}, {SourceRanges: prefixes("10.0.0.0/8")}}, "source_prefix_ranges 10.0.0.0/8"},
		{"several criteria", []match{
			{DestinationPort: 1, TransportProtocol: "tls", SourcePorts: []uint16{2, 3}},
			{DestinationPort: 1, TransportProtocol: "tls", SourcePorts: []uint16{3}},
		}, `destination_port 1, transport_protocol "tls", source_ports 3`},
		{"a value twice in one chain", []match{{SourcePorts: []uint16{1, 1}}}, ""},
		{"a name and a wildcard", []match{{ServerNames: []string{"a.b"}}, {ServerNames: []string{"*.b"}}}, ""},
		{"nested ranges", []match{{DestinationRanges: prefixes("10.0.0.0/8")}, {DestinationRanges: prefixes("10.0.0.0/9")}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.matches)
			var conflict *ConflictError
			switch {
			case tt.conflict == "" && err != nil:
				t.Errorf("Compile = %v, want no error", err)
			case tt.conflict == "":
			case !errors.As(err, &conflict) || conflict.First != 0 || conflict.Second != len(tt.matches)-1 || conflict.Criteria != tt.conflict:
				t.Errorf("Compile = %v, want a conflict of the first and the last on %s", err, tt.conflict)
			}
		})
	}
}

func TestTooManyCombinationsAreRejected(t *testing.T) {
	m := config.ChainMatch{}
	for i := range uint16(1001) {
		m.SourcePorts = append(m.SourcePorts, i+1)
		m.ServerNames = append(m.ServerNames, fmt.Sprintf("n%d", i))
	}
	if _, err := Compile([]config.ChainMatch{m}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Compile = %v, want ErrTooLarge", err)
	}
}

func TestNeedsFor(t *testing.T) {
	m, err := Compile([]config.ChainMatch{
		{DestinationPort: 443, ServerNames: []string{"a.example"}},
		{DestinationPort: 80, ApplicationProtocols: []string{"h2c"}},
		{DestinationPort: 81, ApplicationProtocols: []string{"h2"}},
		{DestinationPort: 3306},
		{DestinationRanges: prefixes("10.2.0.0/16"), TransportProtocol: config.TransportTLS},
		{DestinationRanges: prefixes("10.3.0.0/16")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for destination, want := range map[string]Needs{
		"10.1.1.1:443": NeedTLS, "10.1.1.1:80": NeedTLS | NeedHTTP, "10.1.1.1:81": NeedTLS, "10.1.1.1:3306": 0,
		"10.2.1.1:1": NeedTLS, "10.3.1.1:1": 0, "10.4.1.1:1": 0,
	} {
		if got := m.NeedsFor(&Connection{Destination: addrPort(destination)}); got != want {
			t.Errorf("NeedsFor(%s) = %b, want %b", destination, got, want)
		}
	}
}

// referenceMatch follows the package documentation literally: at each criterion it drops the chains
// that are not among the most specific.
func referenceMatch(matches []config.ChainMatch, c *Connection) int {
	candidates := make([]int, len(matches))
	for i := range candidates {
		candidates[i] = i
	}
	// The functions below return how specifically a chain matches c in one criterion: 0 if the
	// chain does not have the criterion, -1 if it does not match.
	rangeScore := func(list []netip.Prefix, a netip.Addr) int {
		best := 0
		if len(list) > 0 {
			best = -1
		}
		for _, p := range list {
			if p.Contains(a) {
				best = max(best, p.Bits()+1)
			}
		}
		return best
	}
	score := func(configured, matched bool) int {
		switch {
		case !configured:
			return 0
		case matched:
			return 1
		}
		return -1
	}
	for _, specificity := range []func(m *config.ChainMatch) int{
		func(m *config.ChainMatch) int {
			return score(m.DestinationPort != 0, m.DestinationPort == c.Destination.Port())
		},
		func(m *config.ChainMatch) int { return rangeScore(m.DestinationRanges, c.Destination.Addr()) },
		func(m *config.ChainMatch) int {
			best := score(len(m.ServerNames) > 0, false)
			for _, name := range m.ServerNames {
				suffix, isWildcard := strings.CutPrefix(name, "*")
				switch {
				case !isWildcard && name == c.ServerName:
					best = 1000
				case isWildcard && strings.HasSuffix(c.ServerName, suffix) && len(c.ServerName) > len(suffix):
					best = max(best, len(suffix))
				}
			}
			return best
		},
		func(m *config.ChainMatch) int {
			return score(m.TransportProtocol != "", m.TransportProtocol == c.Transport)
		},
		func(m *config.ChainMatch) int {
			best := score(len(m.ApplicationProtocols) > 0, false)
			for i, p := range c.Protocols {
				if slices.Contains(m.ApplicationProtocols, p) {
					best = max(best, 100-i)
				}
			}
			return best
		},
		func(m *config.ChainMatch) int { return rangeScore(m.DirectSourceRanges, c.DirectSource) },
		func(m *config.ChainMatch) int {
			local := c.Source.Addr().IsLoopback() || c.Source.Addr() == c.Destination.Addr()
			return score(m.SourceType != "", local == (m.SourceType == config.LocalSource))
		},
		func(m *config.ChainMatch) int { return rangeScore(m.SourceRanges, c.Source.Addr()) },
		func(m *config.ChainMatch) int {
			return score(len(m.SourcePorts) > 0, slices.Contains(m.SourcePorts, c.Source.Port()))
		},
	} {
		best := 0
		for _, i := range candidates {
			best = max(best, specificity(&matches[i]))
		}
		candidates = slices.DeleteFunc(candidates, func(i int) bool { return specificity(&matches[i]) != best })
	}
	if len(candidates) == 0 {
		return -1
	}
	return candidates[0]
}

// generator generates chains and connections from few values, so that they often match.
type generator struct{ *rand.Rand }

func (g generator) port() uint16 { return uint16(1 + g.IntN(3)) } //nolint:gosec // at most 3

func (g generator) addr() netip.Addr {
	if g.IntN(4) == 0 {
		return netip.MustParseAddr([]string{"::1", "fd00::1", "fd00::2"}[g.IntN(3)])
	}
	return netip.AddrFrom4([4]byte{[]byte{10, 127}[g.IntN(2)], byte(g.IntN(2)), 0, byte(g.IntN(2))}) //nolint:gosec // small
}

func (g generator) prefix() netip.Prefix {
	a := g.addr()
	bits := []int{0, 8, 16, 31, 32}[g.IntN(5)]
	if !a.Is4() {
		bits *= 4
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func (g generator) name() string { return []string{"a.x.y", "b.x.y", "x.y", "a.y"}[g.IntN(4)] }

func (g generator) serverName() string {
	return []string{"*.x.y", "*.y", "*.a.x.y", g.name(), g.name()}[g.IntN(5)]
}

func (g generator) protocol() string { return []string{"h2", "http/1.1", "h2c"}[g.IntN(3)] }

func list[T any](g generator, newValue func() T) (out []T) {
	for range max(0, g.IntN(5)-2) {
		out = append(out, newValue())
	}
	return out
}

func (g generator) match() config.ChainMatch {
	m := config.ChainMatch{
		DestinationRanges: list(g, g.prefix), ServerNames: list(g, g.serverName), ApplicationProtocols: list(g, g.protocol),
		DirectSourceRanges: list(g, g.prefix), SourceRanges: list(g, g.prefix), SourcePorts: list(g, g.port),
		TransportProtocol: []config.TransportProtocol{"", "", "tls", "raw_buffer"}[g.IntN(4)],
		SourceType:        []config.SourceType{"", "", config.LocalSource, config.ExternalSource}[g.IntN(4)],
	}
	if g.IntN(3) == 0 {
		m.DestinationPort = g.port()
	}
	return m
}

func (g generator) connection() Connection {
	c := Connection{
		Destination: netip.AddrPortFrom(g.addr(), g.port()), Source: netip.AddrPortFrom(g.addr(), g.port()), DirectSource: g.addr(),
		Transport: []config.TransportProtocol{"tls", "raw_buffer"}[g.IntN(2)], Protocols: list(g, g.protocol),
	}
	if g.IntN(3) > 0 {
		c.ServerName = g.name()
	}
	return c
}

func TestMatchEqualsReference(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))} //nolint:gosec // a reproducible sequence
	tried, found := 0, 0
	for range 5000 {
		matches := make([]config.ChainMatch, 1+g.IntN(8))
		for i := range matches {
			matches[i] = g.match()
		}
		m, err := Compile(matches)
		if err != nil {
			continue
		}
		for range 20 {
			c := g.connection()
			want := referenceMatch(matches, &c)
			if got := m.Match(&c); got != want {
				t.Fatalf("Match(%+v) = %d, want %d, of\n%+v", c, got, want, matches)
			}
			if tried++; want >= 0 {
				found++
			}
		}
	}
	if tried < 20_000 || found < tried/10 {
		t.Errorf("%d connections, %d with a chain; want at least 20,000, and a chain for a tenth", tried, found)
	}
}

// thousandChains returns a Matcher of 1,000 chains, two for each pair of server names, a
// connection for one of them, and the index of that chain.
func thousandChains(t testing.TB) (*Matcher, Connection, int) {
	t.Helper()
	var matches []config.ChainMatch
	for i := range 500 {
		m := config.ChainMatch{
			DestinationPort: 443, DestinationRanges: prefixes(fmt.Sprintf("10.%d.0.0/16", i%250), "10.0.0.0/8"),
			ServerNames: []string{fmt.Sprintf("a%d.example", i), fmt.Sprintf("*.b%d.example", i)}, TransportProtocol: config.TransportTLS,
		}
		matches = append(matches, m)
		m.ApplicationProtocols = []string{"h2"}
		matches = append(matches, m)
	}
	m, err := Compile(matches)
	if err != nil {
		t.Fatal(err)
	}
	c := handshake("x.y.b251.example", "h2", "http/1.1")
	return m, c, 503
}

func TestMatchDoesNotAllocate(t *testing.T) {
	m, c, want := thousandChains(t)
	if n := testing.AllocsPerRun(100, func() {
		if got := m.Match(&c); got != want {
			t.Fatalf("Match = %d, want %d", got, want)
		}
	}); n != 0 {
		t.Errorf("Match allocates %v times, want 0", n)
	}
}

func BenchmarkMatchThousandChains(b *testing.B) {
	m, c, _ := thousandChains(b)
	b.ReportAllocs()
	for b.Loop() {
		m.Match(&c)
	}
}
