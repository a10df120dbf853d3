package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// guard protects the port against web pages that an operator visits. It rejects
//
//   - requests for a host name that is not allowed: a page whose name resolves to Weft's
//     address (DNS rebinding) could read everything;
//   - requests that a browser makes for a page of another origin, unless the operator
//     followed a link.
//
// Clients other than browsers send neither Origin nor Sec-Fetch-Site.
type guard struct {
	hosts  []string // lower case
	origin *http.CrossOriginProtection
	next   http.Handler
}

func newGuard(hosts []string, next http.Handler) *guard {
	g := &guard{origin: http.NewCrossOriginProtection(), next: next}
	for _, h := range hosts {
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	return g
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.isAllowedHost(r) {
		writeError(w, http.StatusForbidden, "the host name is not allowed", "use the address or localhost, or add the name to admin.allowed_hosts")
		return
	}
	if err := g.origin.Check(r); err != nil || isCrossSite(r) {
		writeError(w, http.StatusForbidden, "requests from web pages of another origin are rejected", "")
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	g.next.ServeHTTP(w, r)
}

// isAllowedHost reports whether the request is for an IP address, localhost or an allowed host name. It
// returns true for a unix socket, which browsers cannot reach.
func (g *guard) isAllowedHost(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || slices.ContainsFunc(g.hosts, func(allowed string) bool { return matchesHost(allowed, host) })
}

// matchesHost reports whether host is the allowed name, or ends in the suffix of an allowed "*.suffix".
func matchesHost(allowed, host string) bool {
	suffix, wild := strings.CutPrefix(allowed, "*")
	if wild {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return host == allowed
}

// isCrossSite reports whether a page of another origin makes the request, and the operator did
// not follow a link. CrossOriginProtection allows every GET; isCrossSite also rejects
// cross-origin GETs, because some endpoints are expensive.
func isCrossSite(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		_, host, _ := strings.Cut(origin, "://")
		return !strings.EqualFold(host, r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	foreign := site == "cross-site" || site == "same-site"
	return foreign && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}
