package dubbo

import (
	"net"
	"net/netip"
	"os"
	"strings"
)

// hostVariable is the variable of the environment that Dubbo's own providers go by, too.
const hostVariable = "DUBBO_IP_TO_REGISTRY"

// hostToPublish returns what providers are published with: what is configured, else what
// the environment says, else the machine's first global IPv4 address.
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
	texts := make([]string, 0, len(addresses))
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return firstGlobal(texts)
}

// firstGlobal returns the first IPv4 address, of those in texts, that other machines can
// know; 127.0.0.1 if there is none.
func firstGlobal(texts []string) string {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}
