package httpport

import (
	"net"
	"net/http"
	"strings"
)

// Guard protects a port against web pages that a user of the machine visits. Clients other than
// browsers send neither Origin nor Sec-Fetch-Site.
type Guard struct {
	// AllowHost reports whether requests may be for the host name, which is in lower case and has
	// no port and no brackets: a page whose name resolves to Weft's address (DNS rebinding) could
	// otherwise use the port. local is the address that the request arrived on, nil if unknown.
	// Check does not call AllowHost for unix sockets, which browsers cannot reach.
	AllowHost func(name string, local net.Addr) bool
	// AllowPage reports whether the page that a browser makes the request for may use the port. It
	// returns true for requests of other clients.
	AllowPage func(r *http.Request) bool
}

// Violation is the reason why a Guard rejects a request.
type Violation uint8

// The violations.
const (
	NoViolation Violation = iota
	ForeignHost           // the host name is not allowed
	ForeignPage           // the page is not allowed
)

// Check returns why the port must reject r. The caller sends the response.
func (g *Guard) Check(r *http.Request) Violation {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case (local == nil || local.Network() != "unix") && !g.AllowHost(hostName(r.Host), local):
		return ForeignHost
	case !g.AllowPage(r):
		return ForeignPage
	}
	return NoViolation
}

// hostName returns the name in a Host header in lower case, without port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// SameOrigin is an AllowPage for a port that serves pages. It allows requests of pages from the
// same port, and GET requests that navigate to a page, for example through a link.
// CrossOriginProtection allows every GET; SameOrigin rejects other cross-origin GETs, because some
// endpoints are expensive.
func SameOrigin(r *http.Request) bool {
	if new(http.CrossOriginProtection).Check(r) != nil {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		_, host, _ := strings.Cut(origin, "://")
		return strings.EqualFold(host, r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	otherOrigin := site == "cross-site" || site == "same-site"
	return !otherOrigin || r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

// NoPages is an AllowPage for a port that serves no pages. Among requests of browsers, it allows
// only addresses that the user entered.
func NoPages(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") == "" && (site == "" || site == "none")
}

// Harden limits the request body, and sets the response headers that keep browsers from storing or
// reinterpreting the response.
func Harden(w http.ResponseWriter, r *http.Request, maxBodyBytes int64) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
}
