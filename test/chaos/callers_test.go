package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// dialer opens connections, possibly from a network namespace.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// plainDial opens connections from the namespace of the test process.
func plainDial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// web is an HTTP client.
type web struct {
	client    *http.Client
	transport *http.Transport
	base      string // for example "http://127.0.0.1:1"
}

// newWeb returns a client of the address for HTTP/1.1, or for HTTP/2 with prior knowledge if two is
// true.
func (r *trial) newWeb(address string, two bool, dial dialer) *web {
	t := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!two)
	t.Protocols.SetUnencryptedHTTP2(two)
	return r.webOf(t, "http://"+address)
}

// newSecureWeb returns a TLS client, for HTTP/2 if two is true. A fresh client opens a connection
// for each request.
func (r *trial) newSecureWeb(address string, config *tls.Config, two, fresh bool) *web {
	t := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 64, DisableKeepAlives: fresh, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!two)
	t.Protocols.SetHTTP2(two)
	return r.webOf(t, "https://"+address)
}

func (r *trial) webOf(t *http.Transport, base string) *web {
	r.Cleanup(t.CloseIdleConnections)
	return &web{client: &http.Client{Transport: t}, transport: t, base: base}
}

// hostField is the response header that identifies the host.
const hostField = "X-Host"

// content returns the response body of hosts for a token: size bytes that identify the token.
func content(token string, size int) string {
	return strings.Repeat(token+";", size/(len(token)+1)+1)[:size]
}

// ask sends a request with a token and verifies the complete response body. A truncated response
// must be reported as an error; a body that ends regularly with other content is a failure of the
// kind wrong. The path may have a query. by is the host that responded.
func (w *web) ask(ctx context.Context, method, path, token string, size int) (by string, err error) {
	if !strings.Contains(path, "?") {
		path += "?"
	}
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s%s&token=%s&size=%d", w.base, path, token, size), http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return "", transportFailure(err)
	}
	defer func() { _ = response.Body.Close() }() // read to the end
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fail(fmt.Sprint(response.StatusCode), "%.200q", body)
	}
	if err != nil && ctx.Err() == nil {
		return "", fail("broken off", "after %d bytes of %d: %w", len(body), size, err)
	}
	if err != nil {
		return "", transportFailure(err)
	}
	by = response.Header.Get(hostField)
	if string(body) != content(token, size) {
		return by, fail(wrong, "%s %s for %s of %s: %d bytes %.60q, want %d", method, path, token, by, len(body), body, size)
	}
	return by, nil
}

// get returns a load of GETs of a path with responses of 2 KB.
func (w *web) get(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.ask(ctx, http.MethodGet, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
	}}
}

// post returns a load of POSTs, which must not be repeated.
func (w *web) post(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.ask(ctx, http.MethodPost, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
	}}
}

// transportFailure classifies an error for which there is no response.
func transportFailure(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{"timeout", err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{"refused", err}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &failure{"lost connection", err}
	case strings.Contains(text, "stream error"), strings.Contains(text, "GOAWAY"), strings.Contains(text, "client connection lost"):
		return &failure{"reset stream", err}
	}
	return &failure{"transport", err}
}

// grpcPath is the method of the hosts that returns its message.
const grpcPath = "/chaos.Echo/Call"

// grpc returns a load of unary calls that expect their message back.
func (w *web) grpc(name string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.callGRPC(ctx, content(fmt.Sprintf("%s-%d", name, n), 1<<10))
	}}
}

// callGRPC makes a unary call. It returns an error if the response has no status.
func (w *web) callGRPC(ctx context.Context, text string) (by string, err error) {
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+grpcPath, bytes.NewReader(message))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := w.client.Do(request)
	if err != nil {
		return "", transportFailure(err)
	}
	defer func() { _ = response.Body.Close() }() // read to the end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", transportFailure(err)
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" {
		status = response.Header.Get("Grpc-Status")
	}
	by = response.Header.Get(hostField)
	switch {
	case status == "":
		return by, fail("no status", "%d of %s", response.StatusCode, by)
	case status != "0":
		return by, fail("grpc "+status, "%s%s", response.Header.Get("Grpc-Message"), response.Trailer.Get("Grpc-Message"))
	case !bytes.Equal(body, message):
		return by, fail(wrong, "a call of %d bytes got %d: %.60q", len(message), len(body), body)
	}
	return by, nil
}

// rpc is a Dubbo client with some connections that each carry many concurrent calls.
type rpc struct {
	protocol *frame.Protocol
	address  string
	dial     dialer
	lines    [4]line
}

// line holds one connection of an rpc.
type line struct {
	mu   sync.Mutex
	conn *rpcConn // nil: not open; guarded by mu
}

// newRPC returns a client of the address.
func (r *trial) newRPC(address string, dial dialer) *rpc {
	p, err := frame.Find("dubbo")
	if err != nil {
		r.Fatal(err)
	}
	c := &rpc{protocol: p, address: address, dial: dial}
	r.Cleanup(c.close)
	return c
}

// close closes the connections.
func (c *rpc) close() {
	for i := range c.lines {
		l := &c.lines[i]
		l.mu.Lock()
		if l.conn != nil {
			l.conn.end(net.ErrClosed)
			l.conn = nil
		}
		l.mu.Unlock()
	}
}

// calls returns a load of calls that expect their string back.
func (c *rpc) calls(name string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return "", c.call(ctx, n)
	}}
}

func (c *rpc) call(ctx context.Context, n int) error {
	id := uint64(n) + 1
	for {
		conn, err := c.lines[n%len(c.lines)].get(ctx, c)
		if err != nil {
			return transportFailure(err)
		}
		answer, err := conn.send(id, c.protocol.AppendRequest(nil, id, frame.Text{Token: id}))
		if errors.Is(err, errLeaving) {
			continue // the call was not sent: use another connection
		}
		if err != nil {
			return transportFailure(err)
		}
		select {
		case a := <-answer:
			return a.check(c.protocol, id)
		case <-ctx.Done():
			conn.forget(id)
			return transportFailure(ctx.Err())
		}
	}
}

// get returns a connection that accepts calls.
func (l *line) get(ctx context.Context, c *rpc) (*rpcConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.takesCalls() {
		return l.conn, nil
	}
	socket, err := c.dial(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	l.conn = &rpcConn{socket: socket, waiting: map[uint64]chan rpcAnswer{}}
	go l.conn.read() // ends when close or Weft closes the socket
	return l.conn, nil
}
