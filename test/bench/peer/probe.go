package peer

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/h2"
)

// Probe sends one request to a server over a new connection. It returns an error unless the
// response is the expected one.
type Probe func(server netip.AddrPort) error

// probeTimeout is the timeout of a probe.
const probeTimeout = 5 * time.Second

// HTTP returns a Probe that requests target and expects the status.
func HTTP(target string, status int) Probe {
	return overNewConnection(func(conn net.Conn) error { return probeHTTP(conn, target, status) })
}

// HTTPS is HTTP over TLS with a client certificate.
func HTTPS(certificates certs.Dir, target string, status int) Probe {
	return overNewConnection(func(conn net.Conn) error {
		config, err := certificates.Client()
		if err != nil {
			return err
		}
		return probeHTTP(tls.Client(conn, config), target, status)
	})
}

func probeHTTP(conn net.Conn, target string, status int) error {
	if _, err := io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200") {
		return fmt.Errorf("the response begins with %q", line)
	}
	if got, err := strconv.Atoi(line[9:12]); err != nil || got != status {
		return fmt.Errorf("GET %s: status %s, want %d", target, line[9:12], status)
	}
	return nil
}

// RPC returns a Probe that makes a call.
func RPC(p *frame.Protocol) Probe {
	return overNewConnection(func(conn net.Conn) error { return Call(conn, p) })
}

// HTTP2 returns a Probe that requests a path over HTTP/2, with a message of one byte if it is a
// gRPC path, and expects a response body of size bytes.
func HTTP2(path string, size int) Probe {
	return overNewConnection(func(conn net.Conn) error { return h2.RequestOnce(conn, path, 1, size) })
}

// overNewConnection returns a Probe that calls probe with a new connection.
func overNewConnection(probe func(net.Conn) error) Probe {
	return func(server netip.AddrPort) error {
		conn, err := net.DialTimeout("tcp", server.String(), time.Second)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // only the response matters
		if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
			return err
		}
		return probe(conn)
	}
}

// Call makes one call on a connection without calls in flight and reads its response. It ignores
// heartbeats before the response.
func Call(conn net.Conn, p *frame.Protocol) error {
	const id = 1
	text := frame.Text{Token: id}
	if _, err := conn.Write(p.AppendRequest(nil, id, text)); err != nil {
		return err
	}
	data := make([]byte, 0, 4<<10)
	for {
		n, f, err := p.Parse(data)
		switch {
		case err != nil:
			return err
		case n > 0 && f.Kind == frame.Response:
			if f.ID != id || !p.HasText(f.Text, text) || n < len(data) {
				return fmt.Errorf("%d bytes that begin with response %#x, want only response %#x: %.40q", len(data), f.ID, id, f.Text)
			}
			return nil
		case n > 0:
			data = data[:copy(data, data[n:])]
			continue
		case len(data) == cap(data):
			return errors.New("incomplete frame")
		}
		n, err = conn.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if n == 0 && err != nil {
			return err
		}
	}
}
