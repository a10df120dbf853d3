package stream

import (
	"net"
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// NewConnMeta returns the metadata of a downstream connection of a listener. Every call after the
// PROXY header and the TLS handshake of the connection returns equal values.
func NewConnMeta(listener string, conn *network.Conn) protocol.ConnMeta {
	m := protocol.ConnMeta{ID: conn.ID(), Listener: listener, DownstreamConn: conn}
	m.TLS = NewTLSMeta(conn)
	m.Secure = m.TLS != nil
	m.Local, m.LocalText = addrPortOf(conn.LocalAddr())
	m.Remote, m.RemoteText = addrPortOf(conn.RemoteAddr())
	_, m.Redirected = conn.Addrs().OriginalDst()
	if addr, proxied := conn.Addrs().DirectRemote(); proxied {
		proxy, _ := addrPortOf(addr)
		m.ProxyAddr = &proxy
	}
	if m.Remote.IsValid() {
		m.RemoteIP, _, _ = strings.Cut(m.RemoteText, "]")
		m.RemoteIP = strings.TrimPrefix(m.RemoteIP, "[")
		if m.Remote.Addr().Is4() {
			m.RemoteIP, _, _ = strings.Cut(m.RemoteText, ":")
		}
	}
	return m
}

func addrPortOf(a net.Addr) (netip.AddrPort, string) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
		return ap, ap.String()
	}
	return netip.AddrPort{}, a.String()
}
