package http2

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// brokenConn is a connection whose reads return bytes and then err.
type brokenConn struct {
	net.Conn
	bytes io.Reader
	err   error
}

func (c brokenConn) Read(p []byte) (int, error) {
	if n, _ := c.bytes.Read(p); n > 0 {
		return n, nil
	}
	return 0, c.err
}

func TestCloseReason(t *testing.T) {
	errReset := errors.New("connection reset by peer")
	for _, tt := range []struct {
		name, bytes string
		readErr     error
		wantErr     bool
		want        network.CloseReason
	}{
		{"a client closes between two frames", syntax.Preface, io.EOF, false, network.ClosedByPeer},
		{"a client closes within a frame", syntax.Preface + "\x00", io.EOF, true, network.ClosedByPeer},
		{"a client resets the connection", syntax.Preface, errReset, true, network.ClosedByPeer},
		{"a client sends no preface", "GET / HTTP/1.1\r\n\r\n", io.EOF, true, network.ClosedProtocolError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			engine := New(slog.New(slog.DiscardHandler), nil)
			defer engine.Close()
			local, peer := net.Pipe()
			defer peer.Close()
			go func() { _, _ = io.Copy(io.Discard, peer) }() // ends with local
			conn := network.NewConn(brokenConn{local, strings.NewReader(tt.bytes), tt.readErr})
			defer conn.Close()
			o := stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options()}
			err := newServer(engine, o).ServeConn(t.Context(), conn)
			if (err != nil) != tt.wantErr || conn.CloseReason != tt.want {
				t.Errorf("ServeConn = %v, close reason %v; want an error: %t, %v", err, conn.CloseReason, tt.wantErr, tt.want)
			}
		})
	}
}
