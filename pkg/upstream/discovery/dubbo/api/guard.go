package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// accessControl keeps out
//
//   - requests for a host that is not loopback, where the port is bound to loopback: a
//     web page whose name suddenly resolves to our address (DNS rebinding) could publish
//     what it likes;
//   - requests that a browser makes on behalf of a page, also of one of ours: there is none;
//   - those without the token, if there is one.
//
// Who is kept out gets a status of 4xx always: no existing client is.
type accessControl struct {
	token [sha256.Size]byte // its hash
	asks  bool              // for the token
	next  http.Handler
}

func newGuard(token string, next http.Handler) *accessControl {
	return &accessControl{token: sha256.Sum256([]byte(token)), asks: token != "", next: next}
}

func (g *accessControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case !isLoopbackHost(r):
		reply(w, http.StatusForbidden, failure, "requests for the host "+quoted(r.Host)+" are refused: use 127.0.0.1 or localhost")
		return
	case isBrowserRequest(r):
		reply(w, http.StatusForbidden, failure, "requests of web pages are refused")
		return
	case g.asks && !g.hasToken(r):
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750 3
		reply(w, http.StatusUnauthorized, failure, `the token is missing or wrong: send it as "Authorization: Bearer TOKEN"`)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	g.next.ServeHTTP(w, r)
}

// isBrowserRequest reports whether a page has a browser ask. Who types an address into one asks
// by himself.
func isBrowserRequest(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

// isLoopbackHost reports whether the Host of a request that came by a loopback address is one.
// A unix socket, and an address that was configured for others to reach, is asked under
// any name.
func isLoopbackHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || local.Network() == "unix" || !isLoopback(local) {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().IsLoopback()
	}
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// hasToken reports whether a request shows the token, in a time that says nothing about
// how much of it is right.
func (g *accessControl) hasToken(r *http.Request) bool {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	return subtle.ConstantTimeCompare(hash[:], g.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
