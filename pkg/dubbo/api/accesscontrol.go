package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/internal/httpport"
)

// accessControl rejects
//
//   - requests for a host that is not loopback, if they arrive on a loopback address: a web page
//     could change the address of its host name to 127.0.0.1 (DNS rebinding) and publish services;
//   - requests that a browser sends for a web page, because Weft serves none;
//   - requests without the token, if one is configured.
//
// Rejections have a 4xx status even without StrictStatus: existing clients never cause one.
type accessControl struct {
	token         [sha256.Size]byte // SHA-256 of the token
	tokenRequired bool
	guard         httpport.Guard
	next          http.Handler
}

func newAccessControl(token string, next http.Handler) *accessControl {
	return &accessControl{
		token: sha256.Sum256([]byte(token)), tokenRequired: token != "",
		guard: httpport.Guard{AllowHost: isLoopbackHost, AllowPage: httpport.NoPages},
		next:  next,
	}
}

func (a *accessControl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpport.Harden(w, r, maxBodyBytes)
	switch a.guard.Check(r) {
	case httpport.ForeignHost:
		writeResponse(w, http.StatusForbidden, failure, "requests for the host "+quoted(r.Host)+" are rejected: use 127.0.0.1 or localhost")
		return
	case httpport.ForeignPage:
		writeResponse(w, http.StatusForbidden, failure, "requests from web pages are rejected")
		return
	case httpport.NoViolation:
	}
	if a.tokenRequired && !a.hasToken(r) {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750 3
		writeResponse(w, http.StatusUnauthorized, failure, `the token is missing or wrong: send it as "Authorization: Bearer TOKEN"`)
		return
	}
	a.next.ServeHTTP(w, r)
}

// isLoopbackHost reports whether host is a loopback host, or the request did not arrive on a
// loopback address.
func isLoopbackHost(host string, local net.Addr) bool {
	if local == nil || !httpport.IsLoopback(local) {
		return true
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().IsLoopback()
	}
	return strings.TrimSuffix(host, ".") == "localhost"
}

// hasToken reports whether a request contains the token. The comparison takes constant time.
func (a *accessControl) hasToken(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(hash[:], a.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
