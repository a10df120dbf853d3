package dubbo

import (
	"net"
	"net/netip"
	"os"
	"strings"
)

// hostVariable is an environment variable that Dubbo's Java providers use, too.
const hostVariable = "DUBBO_IP_TO_REGISTRY"

// hostToPublish returns the host under which providers are published: the configured host, or else
// the value of hostVariable, or else the first global IPv4 address of the machine.
func hostToPublish(configured string) string {
	if configured != "" {
		return configured
	}
	if host := strings.TrimSpace(os.Getenv(hostVariable)); host != "" {
		return host
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return firstGlobal(nil)
	}
	prefixes := make([]string, 0, len(addresses))
	for _, a := range addresses {
		prefixes = append(prefixes, a.String())
	}
	return firstGlobal(prefixes)
}

// firstGlobal returns the first global unicast IPv4 address of prefixes, or 127.0.0.1 if there is
// none.
func firstGlobal(prefixes []string) string {
	for _, prefix := range prefixes {
		if p, err := netip.ParsePrefix(prefix); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}
