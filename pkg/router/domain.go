package router

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// maxAuthority is the maximum length in bytes of an authority that is compared with domains; a
// longer one belongs to the domain "*". DNS allows 253.
const maxAuthority = 512

// noVirtualHost is the index that means no virtual host.
const noVirtualHost = -1

// domains finds the virtual host for an authority.
type domains struct {
	exact    map[string]int32      // by host, ":" and port
	suffixes map[string]*wildcards // by port
	prefixes wildcards             // for every port
	catchAll int32                 // for "*"
	literal  bool                  // see config.RouteTable.LiteralDomains; keys of exact are then authorities, and every port is ""
}

// wildcards are the domains with a star at one end: *x of one port, or x*; usually *.x and x.*. The
// zero value is empty.
type wildcards struct {
	lengths      []int // the lengths of the keys, longest first
	virtualHosts map[string]int32
}

// add maps text, the domain without its star, to virtual host n. If text is already present, add
// keeps it and returns its virtual host, else noVirtualHost.
func (w *wildcards) add(text string, n int32) int32 {
	if w.virtualHosts == nil {
		w.virtualHosts = make(map[string]int32)
	}
	if !slices.Contains(w.lengths, len(text)) {
		w.lengths = append(w.lengths, len(text))
		slices.SortFunc(w.lengths, func(a, b int) int { return b - a })
	}
	return putIfAbsent(w.virtualHosts, text, n)
}

// anyPort is the port of domains such as "host:*".
const anyPort = "*"

func newDomains(literal bool) *domains {
	return &domains{exact: make(map[string]int32), suffixes: make(map[string]*wildcards), catchAll: noVirtualHost, literal: literal}
}

// add maps domain to virtual host n. If domain is already present, add keeps it and returns its
// virtual host, else noVirtualHost.
func (d *domains) add(domain string, n int32) (int32, error) {
	if len(domain) > maxAuthority {
		return noVirtualHost, fmt.Errorf("domain %q has %d bytes: at most %d are allowed", domain, len(domain), maxAuthority)
	}
	var buf [maxAuthority + 64]byte
	if d.literal {
		return d.addLiteral(string(protocol.AppendLower(buf[:0], domain)), n)
	}
	name, port := splitPort(domain)
	if prefix, ok := strings.CutSuffix(name, "*"); ok && prefix != "" && port == "" && !strings.ContainsAny(prefix, "*:") {
		return d.prefixes.add(string(protocol.AppendLower(buf[:0], prefix)), n), nil
	}
	name = string(appendHost(buf[:0], name))
	pattern, isWildcard := strings.CutPrefix(name, "*")
	switch {
	case name == "" || strings.Contains(pattern, "*"):
		return noVirtualHost, fmt.Errorf("domain %q is not valid: expected a host, *.suffix or *, optionally with :port or :*, or prefix.*", domain)
	case name == "*" && (port == "" || port == anyPort):
		if d.catchAll != noVirtualHost {
			return d.catchAll, nil
		}
		d.catchAll = n
		return noVirtualHost, nil
	case !isWildcard:
		return putIfAbsent(d.exact, name+":"+port, n), nil
	}
	return d.suffixesOf(port).add(pattern, n), nil
}

// addLiteral is add for a lower-case domain whose colons have no meaning.
func (d *domains) addLiteral(domain string, n int32) (int32, error) {
	prefix, isPrefix := strings.CutSuffix(domain, "*")
	suffix, isSuffix := strings.CutPrefix(domain, "*")
	switch {
	case domain == "*":
		if d.catchAll != noVirtualHost {
			return d.catchAll, nil
		}
		d.catchAll = n
		return noVirtualHost, nil
	case isPrefix && !strings.Contains(prefix, "*"):
		return d.prefixes.add(prefix, n), nil
	case isSuffix && !strings.Contains(suffix, "*"):
		return d.suffixesOf("").add(suffix, n), nil
	case domain == "" || strings.Contains(domain, "*"):
		return noVirtualHost, fmt.Errorf("domain %q is not valid: expected a host, *suffix, prefix* or *", domain)
	}
	return putIfAbsent(d.exact, domain, n), nil
}

func (d *domains) suffixesOf(port string) *wildcards {
	s := d.suffixes[port]
	if s == nil {
		s = &wildcards{}
		d.suffixes[port] = s
	}
	return s
}

// putIfAbsent sets m[key] and returns noVirtualHost if the key is absent; otherwise it returns the
// present value.
func putIfAbsent(m map[string]int32, key string, n int32) int32 {
	if existing, ok := m[key]; ok {
		return existing
	}
	m[key] = n
	return noVirtualHost
}

// find returns the index of the virtual host for a request, or noVirtualHost. An exact domain
// precedes *.suffix, which precedes prefix.*, which precedes "*". Among exact domains and among
// suffixes, the most specific port decides first. Then the longest suffix or prefix precedes the
// others. The cost depends only on the number of different lengths of suffixes and prefixes.
func (d *domains) find(authority, scheme string) int32 {
	if d.onlyCatchAll() || len(authority) > maxAuthority {
		return d.catchAll
	}
	var buf [maxAuthority + 64]byte
	if d.literal {
		return d.findLiteral(protocol.AppendLower(buf[:0], authority))
	}
	name, port := splitPort(authority)
	key := appendHost(buf[:0], name)
	length := len(key)
	var portBuf [3]string
	ports := appendPorts(portBuf[:0], port, scheme)

	key = append(key, ':')
	for _, p := range ports {
		if n, ok := d.exact[string(append(key, p...))]; ok {
			return n
		}
	}
	for _, p := range ports {
		if len(d.suffixes) == 0 {
			break
		}
		s := d.suffixes[p]
		if s == nil {
			continue
		}
		if n, ok := s.longestSuffix(key[:length]); ok {
			return n
		}
	}
	if len(d.prefixes.virtualHosts) == 0 {
		return d.catchAll
	}
	if port == "" {
		key = key[:length]
	} else {
		key = append(key, port...)
	}
	if n, ok := d.prefixes.longestPrefix(key); ok {
		return n
	}
	return d.catchAll
}

// findLiteral is find for a lower-case authority whose colons have no meaning.
func (d *domains) findLiteral(key []byte) int32 {
	if n, ok := d.exact[string(key)]; ok {
		return n
	}
	if s := d.suffixes[""]; s != nil {
		if n, ok := s.longestSuffix(key); ok {
			return n
		}
	}
	if n, ok := d.prefixes.longestPrefix(key); ok {
		return n
	}
	return d.catchAll
}

// longestSuffix finds the longest suffix of key among w. The star must stand for at least one byte.
func (w *wildcards) longestSuffix(key []byte) (n int32, ok bool) {
	for _, l := range w.lengths {
		if l >= len(key) {
			continue
		}
		if n, ok := w.virtualHosts[string(key[len(key)-l:])]; ok {
			return n, true
		}
	}
	return noVirtualHost, false
}

// longestPrefix finds the longest prefix of key among w. The star must stand for at least one byte.
func (w *wildcards) longestPrefix(key []byte) (n int32, ok bool) {
	for _, l := range w.lengths {
		if l >= len(key) {
			continue
		}
		if n, ok := w.virtualHosts[string(key[:l])]; ok {
			return n, true
		}
	}
	return noVirtualHost, false
}

// appendPorts appends the ports of the domains that match a request for port, most specific first.
// A missing port equals the scheme's default port (RFC 9110 4.2.3).
func appendPorts(dst []string, port, scheme string) []string {
	defaultPort := "80"
	if scheme == "https" {
		defaultPort = "443"
	}
	dst = append(dst, port)
	switch port {
	case "":
		dst = append(dst, defaultPort)
	case defaultPort:
		dst = append(dst, "")
	}
	return append(dst, anyPort)
}

// splitPort splits an authority, or a domain, into host and port. The port is "", a number without
// leading zeros, or "*" for a domain. Anything else belongs to the host: names of RPC interfaces
// may contain colons.
func splitPort(authority string) (host, port string) {
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 {
		return authority, ""
	}
	host, port = authority[:colon], authority[colon+1:]
	isIPv6 := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if !isIPv6 && strings.IndexByte(host, ':') >= 0 {
		return authority, ""
	}
	if port == anyPort {
		return host, port
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return authority, ""
		}
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:]
	}
	return host, port
}

// appendHost appends the canonical form of host: lower case, no trailing dot, an IPv6 address in
// its short form. The result is at most a few bytes longer than host.
func appendHost(dst []byte, host string) []byte {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' && strings.IndexByte(host, '%') < 0 {
		if a, err := netip.ParseAddr(host[1 : len(host)-1]); err == nil {
			return append(a.AppendTo(append(dst, '[')), ']')
		}
	}
	if len(host) > 1 && host[len(host)-1] == '.' {
		host = host[:len(host)-1]
	}
	return protocol.AppendLower(dst, host)
}
