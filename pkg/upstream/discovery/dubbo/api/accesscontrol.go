package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// accessControl rejects
//
//   - requests for a host that is not loopback, if they arrive on a loopback address: a web page
//     whose name suddenly resolves to this address (DNS rebinding) could publish anything;
//   - requests that a browser sends for a web page, because Weft serves none;
//   - requests without the token, if one is configured.
//
// Rejections always have a 4xx status: they affect no existing client.
type accessControl struct {
	token         [sha256.Size]byte // SHA-256 of the token
	tokenRequired bool              // the token is required
	next          http.Handler
}

func newAccessControl(token string, next http.Handler) *accessControl {
	return &accessControl{token: sha256.Sum256([]byte(token)), tokenRequired: token != "", next: next}
}

func (g *accessControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case !isLoopbackHost(r):
		writeResponse(w, http.StatusForbidden, failure, "requests for the host "+quoted(r.Host)+" are rejected: use 127.0.0.1 or localhost")
		return
	case isBrowserRequest(r):
		writeResponse(w, http.StatusForbidden, failure, "requests from web pages are rejected")
		return
	case g.tokenRequired && !g.hasToken(r):
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750 3
		writeResponse(w, http.StatusUnauthorized, failure, `the token is missing or wrong: send it as "Authorization: Bearer TOKEN"`)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	g.next.ServeHTTP(w, r)
}

// isBrowserRequest reports whether a browser sent the request for a web page, rather than for an
// address that the user entered.
func isBrowserRequest(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") != "" || site != "" && site != "none"
}

// isLoopbackHost reports whether the Host of a request that arrived on a loopback address is a
// loopback host. Requests on a Unix socket, or on another address, may have any Host.
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

// hasToken reports whether a request contains the token. The comparison takes constant time.
func (g *accessControl) hasToken(r *http.Request) bool {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	return subtle.ConstantTimeCompare(hash[:], g.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
