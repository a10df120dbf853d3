package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/internal/httpport"
)

// newGuard protects next against web pages that an operator visits. It rejects requests for a host
// name that is not allowed (except on unix sockets), and those that httpport.SameOrigin does not
// allow.
func newGuard(hosts []string, next http.Handler) http.Handler {
	allowed := make([]string, len(hosts))
	for i, h := range hosts {
		allowed[i] = strings.ToLower(h)
	}
	guard := httpport.Guard{
		AllowHost: func(name string, _ net.Addr) bool { return isAllowedHost(allowed, name) },
		AllowPage: httpport.SameOrigin,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch guard.Check(r) {
		case httpport.ForeignHost:
			WriteError(w, http.StatusForbidden, "the host name is not allowed", "use the address or localhost, or add the name to admin.allowed_hosts")
			return
		case httpport.ForeignPage:
			WriteError(w, http.StatusForbidden, "requests from web pages of another origin are rejected", "")
			return
		case httpport.NoViolation:
		}
		w.Header().Set("X-Frame-Options", "DENY")
		httpport.Harden(w, r, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// isAllowedHost reports whether host is an IP address, localhost or an allowed host name.
func isAllowedHost(allowed []string, host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || slices.ContainsFunc(allowed, func(name string) bool { return matchesHost(name, host) })
}

// matchesHost reports whether host is the allowed name, or ends in the suffix of an allowed
// "*.suffix".
func matchesHost(allowed, host string) bool {
	suffix, isWildcard := strings.CutPrefix(allowed, "*")
	if isWildcard {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return host == allowed
}
