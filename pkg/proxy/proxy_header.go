package proxy

import (
	"net"
	"net/netip"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/proxyproto"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// connOrigin holds the addresses of the downstream connection for which an upstream connection is
// opened. A missing address is zero. The zero value means that there is no downstream connection.
type connOrigin struct {
	source, destination netip.AddrPort
	hostname            credential.HostnameOverride // zero: use the cluster's settings
}

func originOf(conn *network.Conn) connOrigin {
	return connOrigin{source: addrPort(conn.RemoteAddr()), destination: addrPort(conn.LocalAddr())}
}

func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// writeProxyHeader writes a PROXY protocol header to a new connection if h's cluster requires one.
// Its errors are Faults: ConnectTimeout or ConnectFailure.
func (o connOrigin) writeProxyHeader(conn *network.Conn, h *upstream.Host, deadline time.Time) error {
	var buf [128]byte // enough for a version 1 header, the longest
	var header []byte
	switch h.ProxyProtocol() {
	case 1:
		header = proxyproto.AppendV1(buf[:0], o.source, o.destination)
	case 2:
		header = proxyproto.AppendV2(buf[:0], o.source, o.destination)
	default:
		return nil
	}
	conn.SetWriteDeadline(deadline)
	_, err := conn.Write(header)
	conn.SetWriteDeadline(time.Time{})
	switch {
	case err == nil:
		return nil
	case network.IsTimeout(err):
		return protocol.Faultf(protocol.ConnectTimeout, "sending the PROXY protocol header to %s: %w", h.Name(), err)
	}
	return protocol.Faultf(protocol.ConnectFailure, "sending the PROXY protocol header to %s: %w", h.Name(), err)
}
