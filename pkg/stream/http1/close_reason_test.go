package http1

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// failingBody is a body that returns an error with its first bytes.
type failingBody struct{ protocol.StringBody }

func (*failingBody) Read(p []byte) (int, error) {
	return copy(p, "hel"), protocol.NewFault(protocol.UpstreamReset, nil)
}

func TestCloseReason(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: "
	respondThen := func(modify func(x *protocol.Exchange)) protocol.Service {
		return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.LocalReply(200, "text/plain", "ok")
			modify(x)
			return nil
		})
	}
	ignoreBody := respondThen(func(*protocol.Exchange) {})
	openTunnel := respondThen(func(x *protocol.Exchange) {
		x.ResetResponse()
		x.Response.Status, x.Response.Version, x.Response.Tunnel = 101, "HTTP/1.1", newEchoTunnel()
	})
	disconnect := func(client net.Conn, _ *network.Conn) { client.Close() }
	noAction := func(net.Conn, *network.Conn) {}
	for _, test := range []struct {
		name    string
		service protocol.Service
		request string
		action  func(client net.Conn, conn *network.Conn) // after the response
		want    network.CloseReason
	}{
		{"idle timeout", echo, request, noAction, network.ClosedIdle},
		{"idle tunnel", openTunnel, "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", noAction, network.ClosedIdle},
		{"client closes after the response", echo, request, disconnect, network.ClosedByPeer},
		{"client closes within the head", echo, "GET / HT", disconnect, network.ClosedByPeer},
		{"client closes within the body", echo, post + "5\r\n\r\nhe", disconnect, network.ClosedByPeer},
		{"drained while idle", echo, request, func(_ net.Conn, conn *network.Conn) { conn.Drain(true) }, network.ClosedDrained},
		{"drained during an exchange", respondThen(func(x *protocol.Exchange) { x.Downstream.(*downstreamConn).conn.Drain(true) }), request, noAction, network.ClosedDrained},
		{"drained during an exchange, closeIdle false", respondThen(func(x *protocol.Exchange) { x.Downstream.(*downstreamConn).conn.Drain(false) }), request, noAction, network.ClosedDrained},
		{"Connection: close", echo, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", noAction, network.ClosedOnRequest},
		{"HTTP/1.0", echo, "GET / HTTP/1.0\r\n\r\n", noAction, network.ClosedOnRequest},
		{"response body until close", respondThen(func(x *protocol.Exchange) { x.Response.ContentLength = -1 }),
			"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", noAction, network.ClosedOnRequest},
		{"max requests reached", echo, request + request + request, noAction, network.ClosedMaxRequests},
		{"malformed head", echo, "GET /\r\n\r\n", noAction, network.ClosedProtocolError},
		{"malformed body", echo, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n", noAction, network.ClosedProtocolError},
		{"body too large", echo, post + "2000000\r\n\r\n", noAction, network.ClosedProtocolError},
		{"slow head", echo, "GET / HT", noAction, network.ClosedRequestTimeout},
		{"slow body", echo, post + "5\r\n\r\nhe", noAction, network.ClosedRequestTimeout},
		{"slow unread request body", ignoreBody, post + "5\r\n\r\nhe", noAction, network.ClosedRequestUnread},
		{"large unread request body", ignoreBody, post + "400000\r\n\r\nhe", noAction, network.ClosedRequestUnread},
		{"response body fails", respondThen(func(x *protocol.Exchange) { x.Response.Body, x.Response.ContentLength = &failingBody{}, 5 }),
			request, noAction, network.ClosedResponseTruncated},
		{"panic", respondThen(func(*protocol.Exchange) { panic("a defect of a filter") }), request, noAction, network.ClosedInternalError},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: test.service, IdleTimeout: time.Hour}
				o.HTTP1.MaxRequestsPerConnection, o.HTTP1.MaxRequestBodySize = 3, 1_000_000
				local, client := net.Pipe()
				conn := network.NewConn(local)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer local.Close()
					s := NewServer(o)
					for s.ServeConn(context.Background(), conn) == network.ErrPark {
					}
				}()
				go io.Copy(io.Discard, client)
				io.WriteString(client, test.request)
				synctest.Wait()
				test.action(client, conn)
				<-done
				if conn.CloseReason != test.want {
					t.Errorf("close reason = %v, want %v", conn.CloseReason, test.want)
				}
			})
		})
	}
}

func TestStalledClientIsWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, client := net.Pipe()
		defer client.Close()
		conn := network.NewConn(local)
		defer conn.Close()
		go io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		err := NewServer(stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: echo}).ServeConn(context.Background(), conn)
		if err != nil || conn.CloseReason != network.ClosedWriteTimeout {
			t.Errorf("ServeConn = %v, close reason %v; want nil and write_timeout", err, conn.CloseReason)
		}
	})
}

func TestTunnelCloseReason(t *testing.T) {
	conn, downstream := tcpPair(t)
	upstream, host := tcpPair(t)
	client, _ := newTestUpstreamConn(upstream)
	go func() {
		host.head()
		host.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		host.Close()
	}()
	downstream.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	downstream.CloseWrite()
	s := NewServer(stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: client})
	if err := s.ServeConn(context.Background(), conn); err != nil || conn.CloseReason != network.ClosedComplete {
		t.Errorf("ServeConn = %v, close reason %v; want nil and complete", err, conn.CloseReason)
	}
	if head := downstream.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Errorf("the client got %q, want status 101", head)
	}
}
