package proxy

import (
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// dialer returns the dialer for connections to h.
func dialer(h *upstream.Host) network.Dialer {
	s := h.Socket()
	return network.Dialer{Mark: h.Mark(), KeepAlive: keepAlive(s.KeepAlive), Source4: sourceAddr(s.SourceIPv4), Source6: sourceAddr(s.SourceIPv6), Port4: s.SourcePortIPv4, Port6: s.SourcePortIPv6}
}

// sourceAddr parses a checked address of config.Socket. It returns the zero Addr for "".
func sourceAddr(text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return ip
}

func keepAlive(k config.TCPKeepAlive) network.KeepAlive { return network.KeepAlive(k) }
