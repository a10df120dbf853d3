package router

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// The reference is the simplest implementation of Match. It shares no code with the router.

// refMatch returns the index of x's route by trying the routes in order, -1 if none matches.
func refMatch(c *config.RouteTable, x *protocol.Exchange) int {
	selected := refVirtualHost(c, x.Request.Authority, x.Request.Scheme)
	n := 0
	for _, vh := range c.VirtualHosts {
		for _, r := range vh.Routes {
			if vh == selected && refMatches(&r.Match, x) {
				return n
			}
			n++
		}
	}
	return -1
}

// refVirtualHost returns the virtual host of the domain with the highest score.
func refVirtualHost(c *config.RouteTable, authority, scheme string) *config.VirtualHost {
	var best *config.VirtualHost
	score := 0
	for _, vh := range c.VirtualHosts {
		for _, d := range vh.Domains {
			if s := refScore(d, authority, scheme); s > score {
				best, score = vh, s
			}
		}
	}
	return best
}

// refScore returns how specifically domain matches, 0 if it does not.
func refScore(domain, authority, scheme string) int {
	if domain == "*" || domain == "*:*" {
		return 1
	}
	if len(authority) > 512 {
		return 0
	}
	wantHost, wantPort := refSplit(domain)
	host, port := refSplit(authority)
	if prefix, ok := strings.CutSuffix(domain, "*"); ok && wantPort == "" {
		hostPort := host
		if port != "" {
			hostPort += ":" + port
		}
		if strings.HasPrefix(hostPort, regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(prefix, strings.ToLower)) && len(hostPort) > len(prefix) {
			return 2 + len(prefix)
		}
		return 0
	}
	defaultPort := map[string]string{"https": "443"}[scheme]
	if defaultPort == "" {
		defaultPort = "80"
	}
	var portScore int
	switch {
	case wantPort == port:
		portScore = 3
	case wantPort == "" && port == defaultPort, wantPort == defaultPort && port == "":
		portScore = 2
	case wantPort == "*":
		portScore = 1
	default:
		return 0
	}
	suffix, isWildcard := strings.CutPrefix(wantHost, "*")
	switch {
	case !isWildcard && wantHost == host:
		return 100_000 + portScore
	case isWildcard && strings.HasSuffix(host, suffix) && len(host) > len(suffix):
		return 1000*portScore*10 + len(suffix) + 2
	}
	return 0
}

func refSplit(s string) (host, port string) {
	host = s
	if h, p, err := net.SplitHostPort(s); err == nil && regexp.MustCompile(`^([0-9]*|\*)$`).MatchString(p) {
		host, port = h, p
		if strings.HasPrefix(s, "[") {
			host = "[" + h + "]"
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && strings.HasPrefix(host, "[") && a.Zone() == "" {
		host = "[" + a.String() + "]"
	}
	if len(host) > 1 {
		host = strings.TrimSuffix(host, ".")
	}
	if trimmed := strings.TrimLeft(port, "0"); port != "" {
		port = trimmed
		if port == "" {
			port = "0"
		}
	}
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(host, strings.ToLower), port
}

func refMatches(m *config.RouteMatch, x *protocol.Exchange) bool {
	path := strings.SplitN(x.Request.Path, "?", 2)[0]
	switch m.PathKind {
	case config.PathExact:
		if path != m.Path {
			return false
		}
	case config.PathPrefix:
		if !strings.HasPrefix(path, m.Path) {
			return false
		}
	case config.PathRegex:
		if !regexp.MustCompile(m.Path).MatchString(path) {
			return false
		}
	}
	for _, h := range m.Headers {
		if !slices.ContainsFunc(refHeaderValues(h.Name, x), func(value string) bool {
			return strings.Contains("host :authority", h.Name) && !h.Regex && strings.EqualFold(value, h.Value) ||
				refEqual(value, h.Value, h.Regex || h.Value == ".*")
		}) {
			return false
		}
	}
	if len(m.Variables) == 0 {
		return true
	}
	group, matches := true, false
	for i, v := range m.Variables {
		resolved, _ := variable.Lookup(v.Name)
		value, _ := resolved.Text(x)
		values := []string{value}
		if name, ok := strings.CutPrefix(v.Name, "request_header_"); ok && value != "" {
			values = refHeaderValues(name, x)
		}
		group = group && slices.ContainsFunc(values, func(value string) bool { return refEqual(value, v.Value, v.Regex) })
		if v.Or || i == len(m.Variables)-1 {
			matches, group = matches || group, true
		}
	}
	return matches
}

func refEqual(value, want string, isRegex bool) bool {
	if isRegex {
		return want == ".*" || regexp.MustCompile(want).MatchString(value)
	}
	return value == want
}

// refHeaderValues returns the values that a condition on name evaluates.
func refHeaderValues(name string, x *protocol.Exchange) []string {
	rpc := x.Meta.Protocol == "dubbo"
	pseudoHeaders := map[string]string{
		":method": x.Request.Method, ":path": x.Request.Path, ":scheme": x.Request.Scheme, ":authority": x.Request.Authority,
	}
	if v, ok := pseudoHeaders[name]; ok {
		return []string{v}
	}
	pseudo := map[string]string{
		"method": x.Request.Method, "host": x.Request.Authority, "authority": x.Request.Authority,
		"path": strings.SplitN(x.Request.Path, "?", 2)[0],
	}
	pseudoValue, isPseudo := pseudo[name]
	if rpc || !isPseudo {
		var values []string
		for field, value := range x.Request.Header.All() {
			if strings.EqualFold(field, name) {
				values = append(values, value)
			}
		}
		if rpc && slices.Contains([]string{"service", "method", "version", "group"}, name) && len(values) > 0 {
			return values[:1]
		}
		if len(values) > 0 || !isPseudo {
			return values
		}
	}
	return []string{pseudoValue}
}

// generator generates tables and requests from few values, so that they often match.
type generator struct{ *rand.Rand }

func pick[T any](g generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g generator) path() string {
	var b strings.Builder
	for range g.IntN(5) {
		b.WriteString(pick(g, "/", "/a", "/ab", "/abc", "/b", "b", "//", "/%61", "/..", ";v=1"))
	}
	return b.String()
}

func (g generator) domain() string {
	if g.IntN(5) == 0 {
		return pick(g, "a.*", "A.te*", "b.*", "b.a.*", "com.*", "*")
	}
	return pick(g, "a.test", "b.a.test", "c.b.a.test", "*.test", "*.a.test", "*.b.a.test", "*b.a.test", "*", "[::1]", "[0:0::2]", "A.Test.", "com.x.Y") +
		pick(g, "", "", ":80", ":443", ":8080", ":*")
}

func (g generator) authority() string {
	return pick(g, "a.test", "A.TEST", "a.test.", "b.a.test", "c.b.a.test", "xb.a.test", ".a.test", "other", "[::1]", "[::2]", "[0::1]", "com.x.Y", "com.x.Y:1.0", "::1", "") +
		pick(g, "", "", ":80", ":443", ":8080", ":080", ":", ":x")
}

func (g generator) match() config.RouteMatch {
	m := config.RouteMatch{PathKind: pick(g, config.PathAny, config.PathPrefix, config.PathPrefix, config.PathExact, config.PathExact, config.PathRegex)}
	switch m.PathKind {
	case config.PathRegex:
		m.Path = pick(g, "^/a", "b$", "/ab?", ".*", "")
	case config.PathAny:
	default:
		m.Path = g.path()
	}
	for range max(0, g.IntN(5)-2) {
		h := config.HeaderMatch{Name: pick(g, "x", "service", "method", "host", "path", "authority", ":method", ":path", ":authority", ":scheme")}
		h.Value, h.Regex = pick(g, "1", "2", "GET", "/a", "a.test", "http"), g.IntN(4) == 0
		if g.IntN(4) == 0 {
			h.Value = ".*"
		}
		m.Headers = append(m.Headers, h)
	}
	for range max(0, g.IntN(8)-4) {
		m.Variables = append(m.Variables, config.VariableMatch{
			Name: pick(g, "method", "x-mosn-path", "request_header_x", "connection_id", "query"), Value: pick(g, "1", "GET", "/a", "", "q"),
			Regex: g.IntN(4) == 0, Or: g.IntN(2) == 0,
		})
	}
	return m
}

func (g generator) table() *config.RouteTable {
	t := &config.RouteTable{Name: "t"}
	used := make(map[string]bool)
	for range 1 + g.IntN(5) {
		vh := &config.VirtualHost{}
		for range 1 + g.IntN(3) {
			domain := g.domain()
			host, port := refSplit(domain)
			if key := host + " " + port; !used[key] && !(host == "*" && used["*"]) {
				used[key] = true
				if host == "*" && port != "80" && port != "443" && port != "8080" {
					used["*"] = true
				}
				vh.Domains = append(vh.Domains, domain)
			}
		}
		if len(vh.Domains) == 0 {
			continue
		}
		for range g.IntN(12) {
			vh.Routes = append(vh.Routes, &config.Route{Match: g.match(), Forward: &config.Forward{Cluster: "c"}})
		}
		t.VirtualHosts = append(t.VirtualHosts, vh)
	}
	return t
}

func (g generator) exchange() *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Meta.Protocol = pick(g, "Http1", "Http2", "dubbo")
	x.Request.Method = pick(g, "GET", "POST", "1")
	x.Request.Scheme = pick(g, "http", "https")
	x.Request.Authority = g.authority()
	x.Request.Path = g.path() + pick(g, "", "?q", "?a?b")
	for range g.IntN(5) {
		x.Request.Header.Add(pick(g, "x", "X", "service", "method", "host", "path"), pick(g, "1", "2", "GET", "/a", "a.test"))
	}
	return x
}

// compare fails the test if the compiled table and the reference disagree.
func compare(t *testing.T, c *config.RouteTable, table *Table, x *protocol.Exchange) {
	t.Helper()
	want := refMatch(c, x)
	got := table.Find(x)
	if got == want {
		return
	}
	var routes strings.Builder
	n := 0
	for _, vh := range c.VirtualHosts {
		fmt.Fprintf(&routes, "%q\n", vh.Domains)
		for _, r := range vh.Routes {
			fmt.Fprintf(&routes, "  %d: %+v\n", n, r.Match)
			n++
		}
	}
	t.Fatalf("Find(%s %s %q %q %v) = %d, want %d of\n%s", x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path,
		slices.Collect(func(yield func(string) bool) {
			for k, v := range x.Request.Header.All() {
				if !yield(k + "=" + v) {
					return
				}
			}
		}), got, want, &routes)
}

func TestMatchEqualsLinearScan(t *testing.T) {
	matched, unmatched := 0, 0
	for seed := range uint64(700) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		c := g.table()
		table, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			x := g.exchange()
			compare(t, c, table, x)
			if table.Match(x) == nil {
				unmatched++
			} else {
				matched++
			}
		}
	}
	if matched < 5_000 || unmatched < 5_000 {
		t.Errorf("%d requests match and %d do not: too unbalanced to verify anything", matched, unmatched)
	}
}

// FuzzMatch lets the fuzzer choose the paths of a table and a request.
func FuzzMatch(f *testing.F) {
	f.Add("/a\n/ab\n=/abc\n/", "a.test:80", "*.test", "/abc?q", "GET", uint8(3))
	f.Add("/", "A.test.:8080", "A.te*", "/", "GET", uint8(0))
	f.Add("=\n\n/\n//", "[::1]", "[0::1]:*", "", "", uint8(0))
	f.Add("/\xff\n/\xff\xfe", "A.", "a", "/\xff\xfe", "POST", uint8(255))
	f.Fuzz(func(t *testing.T, paths, authority, domain, path, method string, interval uint8) {
		vh := &config.VirtualHost{Domains: []string{domain}}
		for i, p := range strings.Split(paths, "\n") {
			m := config.RouteMatch{PathKind: config.PathPrefix, Path: p}
			if exact, ok := strings.CutPrefix(p, "="); ok {
				m = config.RouteMatch{PathKind: config.PathExact, Path: exact}
			}
			if i%(int(interval)+1) == 1 {
				m.Headers = []config.HeaderMatch{{Name: "method", Value: "GET"}}
			}
			vh.Routes = append(vh.Routes, &config.Route{Match: m, Forward: &config.Forward{Cluster: "c"}})
		}
		c := &config.RouteTable{VirtualHosts: []*config.VirtualHost{vh}}
		table, err := Compile(c)
		if err != nil {
			return
		}
		x := &protocol.Exchange{}
		x.Request.Authority, x.Request.Path, x.Request.Method = authority, path, method
		compare(t, c, table, x)
		x.Request.Scheme = "https"
		compare(t, c, table, x)
	})
}
