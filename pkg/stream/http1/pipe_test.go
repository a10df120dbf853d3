package http1

import (
	"net"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// tcpPair returns two ends of a connection on loopback.
func tcpPair(t testing.TB) (*network.Conn, *peer) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	remote, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	local := network.NewConn(nc)
	t.Cleanup(func() { local.Close(); remote.Close() })
	return local, newPeer(t, remote)
}

// newTestUpstreamConn returns an UpstreamConn on conn and a channel that receives its release.
func newTestUpstreamConn(conn *network.Conn) (*UpstreamConn, <-chan bool) {
	reusable := make(chan bool, 10)
	return newUpstreamConn(conn, stream.UpstreamConnOptions{
		HTTP1:     config.DefaultHTTP1Options(),
		OnRelease: func(isReusable bool) { reusable <- isReusable },
	}), reusable
}

// newExchange returns an exchange with a request and no Downstream.
func newExchange(method string, body protocol.Body) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Authority, x.Request.Path = method, "h", "/"
	x.Request.Body = body
	return x
}
