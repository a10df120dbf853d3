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

// The reference implements Match as plainly as possible. It shares no code with the router.

// refMatch returns the index of x's route by trying the routes in order, -1 if none matches.
func refMatch(c *config.RouteTable, x *protocol.Exchange) int {
	chosen := refVirtualHost(c, x.Request.Authority, x.Request.Scheme)
	n := 0
	for _, vh := range c.VirtualHosts {
		for _, r := range vh.Routes {
			if vh == chosen && refHolds(&r.Match, x) {
				return n
			}
			n++
		}
	}
	return -1
}

// refVirtualHost scores every domain and returns the best.
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
		whole := host
		if port != "" {
			whole += ":" + port
		}
		if strings.HasPrefix(whole, regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(prefix, strings.ToLower)) && len(whole) > len(prefix) {
			return 2 + len(prefix)
		}
		return 0
	}
	standard := map[string]string{"https": "443"}[scheme]
	if standard == "" {
		standard = "80"
	}
	var portScore int
	switch {
	case wantPort == port:
		portScore = 3
	case wantPort == "" && port == standard, wantPort == standard && port == "":
		portScore = 2
	case wantPort == "*":
		portScore = 1
	default:
		return 0
	}
	suffix, wild := strings.CutPrefix(wantHost, "*")
	switch {
	case !wild && wantHost == host:
		return 100_000 + portScore
	case wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix):
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

func refHolds(m *config.RouteMatch, x *protocol.Exchange) bool {
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
		if !slices.ContainsFunc(refField(h.Name, x), func(value string) bool {
			return strings.Contains("host :authority", h.Name) && !h.Regex && strings.EqualFold(value, h.Value) ||
				refEqual(value, h.Value, h.Regex || h.Value == ".*")
		}) {
			return false
		}
	}
	if len(m.Variables) == 0 {
		return true
	}
	group, holds := true, false
	for i, v := range m.Variables {
		of, _ := variable.Lookup(v.Name)
		value, _ := of.Text(x)
		values := []string{value}
		if name, ok := strings.CutPrefix(v.Name, "request_header_"); ok && value != "" {
			values = refField(name, x)
		}
		group = group && slices.ContainsFunc(values, func(value string) bool { return refEqual(value, v.Value, v.Regex) })
		if v.Or || i == len(m.Variables)-1 {
			holds, group = holds || group, true
		}
	}
	return holds
}

func refEqual(value, want string, isRegex bool) bool {
	if isRegex {
		return want == ".*" || regexp.MustCompile(want).MatchString(value)
	}
	return value == want
}

// refField returns the values that a condition on name evaluates.
func refField(name string, x *protocol.Exchange) []string {
	rpc := x.Meta.Protocol == "dubbo"
	own := map[string]string{
		":method": x.Request.Method, ":path": x.Request.Path, ":scheme": x.Request.Scheme, ":authority": x.Request.Authority,
	}
	if v, ok := own[name]; ok {
		return []string{v}
	}
	pseudo := map[string]string{
		"method": x.Request.Method, "host": x.Request.Authority, "authority": x.Request.Authority,
		"path": strings.SplitN(x.Request.Path, "?", 2)[0],
	}
	own1, isPseudo := pseudo[name]
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
	return []string{own1}
}

// generator generates tables and requests from few words, so that they match often.
type generator struct{ *rand.Rand }

func pick[T any](d generator, of ...T) T { return of[d.IntN(len(of))] }

func (d generator) path() string {
	var b strings.Builder
	for range d.IntN(5) {
		b.WriteString(pick(d, "/", "/a", "/ab", "/abc", "/b", "b", "//", "/%61", "/..", ";v=1"))
	}
	return b.String()
}

func (d generator) domain() string {
	if d.IntN(5) == 0 {
		return pick(d, "a.*", "A.te*", "b.*", "b.a.*", "com.*", "*")
	}
	return pick(d, "a.test", "b.a.test", "c.b.a.test", "*.test", "*.a.test", "*.b.a.test", "*b.a.test", "*", "[::1]", "[0:0::2]", "A.Test.", "com.x.Y") +
		pick(d, "", "", ":80", ":443", ":8080", ":*")
}

func (d generator) authority() string {
	return pick(d, "a.test", "A.TEST", "a.test.", "b.a.test", "c.b.a.test", "xb.a.test", ".a.test", "other", "[::1]", "[::2]", "[0::1]", "com.x.Y", "com.x.Y:1.0", "::1", "") +
		pick(d, "", "", ":80", ":443", ":8080", ":080", ":", ":x")
}

func (d generator) match() config.RouteMatch {
	m := config.RouteMatch{PathKind: pick(d, config.PathAny, config.PathPrefix, config.PathPrefix, config.PathExact, config.PathExact, config.PathRegex)}
	switch m.PathKind {
	case config.PathRegex:
		m.Path = pick(d, "^/a", "b$", "/ab?", ".*", "")
	case config.PathAny:
	default:
		m.Path = d.path()
	}
	for range max(0, d.IntN(5)-2) {
		h := config.HeaderMatch{Name: pick(d, "x", "service", "method", "host", "path", "authority", ":method", ":path", ":authority", ":scheme")}
		h.Value, h.Regex = pick(d, "1", "2", "GET", "/a", "a.test", "http"), d.IntN(4) == 0
		if d.IntN(4) == 0 {
			h.Value = ".*"
		}
		m.Headers = append(m.Headers, h)
	}
	for range max(0, d.IntN(8)-4) {
		m.Variables = append(m.Variables, config.VariableMatch{
			Name: pick(d, "method", "x-mosn-path", "request_header_x", "connection_id", "query"), Value: pick(d, "1", "GET", "/a", "", "q"),
			Regex: d.IntN(4) == 0, Or: d.IntN(2) == 0,
		})
	}
	return m
}

func (d generator) table() *config.RouteTable {
	t := &config.RouteTable{Name: "t"}
	used := make(map[string]bool)
	for range 1 + d.IntN(5) {
		vh := &config.VirtualHost{}
		for range 1 + d.IntN(3) {
			domain := d.domain()
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
		for range d.IntN(12) {
			vh.Routes = append(vh.Routes, &config.Route{Match: d.match(), Forward: &config.Forward{Cluster: "c"}})
		}
		t.VirtualHosts = append(t.VirtualHosts, vh)
	}
	return t
}

func (d generator) exchange() *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Meta.Protocol = pick(d, "Http1", "Http2", "dubbo")
	x.Request.Method = pick(d, "GET", "POST", "1")
	x.Request.Scheme = pick(d, "http", "https")
	x.Request.Authority = d.authority()
	x.Request.Path = d.path() + pick(d, "", "?q", "?a?b")
	for range d.IntN(5) {
		x.Request.Header.Add(pick(d, "x", "X", "service", "method", "host", "path"), pick(d, "1", "2", "GET", "/a", "a.test"))
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
	t.Fatalf("Match(%s %s %q %q %v) = %d, want %d of\n%s", x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path,
		slices.Collect(func(yield func(string) bool) {
			for k, v := range x.Request.Header.All() {
				if !yield(k + "=" + v) {
					return
				}
			}
		}), got, want, &routes)
}

func TestMatchEqualsLinearScan(t *testing.T) {
	matched, none := 0, 0
	for seed := range uint64(700) {
		d := generator{rand.New(rand.NewPCG(seed, 1))}
		c := d.table()
		table, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			x := d.exchange()
			compare(t, c, table, x)
			if table.Match(x) == nil {
				none++
			} else {
				matched++
			}
		}
	}
	if matched < 5_000 || none < 5_000 {
		t.Errorf("the tables match %d requests and do not match %d: too one-sided to prove anything", matched, none)
	}
}

// FuzzMatch lets the fuzzer choose the paths of a table and a request.
func FuzzMatch(f *testing.F) {
	f.Add("/a\n/ab\n=/abc\n/", "a.test:80", "*.test", "/abc?q", "GET", uint8(3))
	f.Add("/", "A.test.:8080", "A.te*", "/", "GET", uint8(0))
	f.Add("=\n\n/\n//", "[::1]", "[0::1]:*", "", "", uint8(0))
	f.Add("/\xff\n/\xff\xfe", "A.", "a", "/\xff\xfe", "POST", uint8(255))
	f.Fuzz(func(t *testing.T, paths, authority, domain, path, method string, every uint8) {
		vh := &config.VirtualHost{Domains: []string{domain}}
		for i, p := range strings.Split(paths, "\n") {
			m := config.RouteMatch{PathKind: config.PathPrefix, Path: p}
			if exact, ok := strings.CutPrefix(p, "="); ok {
				m = config.RouteMatch{PathKind: config.PathExact, Path: exact}
			}
			if i%(int(every)+1) == 1 {
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
