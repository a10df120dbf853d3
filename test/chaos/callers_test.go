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

// dialer opens connections, perhaps from a namespace.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// plainDial opens them from where the test runs.
func plainDial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// web is a caller of HTTP.
type web struct {
	client    *http.Client
	transport *http.Transport
	base      string // "http://127.0.0.1:1"
}

// newWeb returns a caller of the address in HTTP/1.1, or in HTTP/2 without TLS.
func (r *trial) newWeb(address string, two bool, dial dialer) *web {
	t := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!two)
	t.Protocols.SetUnencryptedHTTP2(two)
	return r.webOf(t, "http://"+address)
}

// newSecureWeb returns a caller over TLS that agrees on HTTP/2 if two says so.
// Fresh callers have a connection for each request.
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

// hostField is the field in which hosts say who they are.
const hostField = "X-Host"

// content is what hosts answer to a request for a token: size bytes that no other
// token has.
func content(token string, size int) string {
	return strings.Repeat(token+";", size/(len(token)+1)+1)[:size]
}

// ask makes a request for a token and holds that the answer is its own, to the last
// byte. An answer that ends early must be known as that: one that says it is whole
// is wrong. The path may have a query.
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
	defer func() { _ = response.Body.Close() }() // it was read to the end
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

// get is a load of GETs of 2 KB of a path.
func (w *web) get(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.ask(ctx, http.MethodGet, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
	}}
}

// post is a load of POSTs, which must not be made twice.
func (w *web) post(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.ask(ctx, http.MethodPost, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
	}}
}

// transportFailure tells kinds of failures apart that are no answers.
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

// grpcPath is the method of hosts that returns its message.
const grpcPath = "/chaos.Echo/Call"

// grpc is a load of unary calls whose message comes back.
func (w *web) grpc(name string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return w.callGRPC(ctx, content(fmt.Sprintf("%s-%d", name, n), 1<<10))
	}}
}

// callGRPC makes a unary call. What has no status in its trailers did not succeed.
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
	defer func() { _ = response.Body.Close() }() // it was read to the end
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

// rpc is a caller of Dubbo with some connections, each for many calls at once.
type rpc struct {
	protocol *frame.Protocol
	address  string
	dial     dialer
	lines    [4]line
}

// line is the place of one connection.
type line struct {
	mu   sync.Mutex
	conn *rpcConn // nil: none was opened
}

// newRPC returns a caller of the address.
func (r *trial) newRPC(address string, dial dialer) *rpc {
	p, err := frame.Find("dubbo")
	if err != nil {
		r.Fatal(err)
	}
	c := &rpc{protocol: p, address: address, dial: dial}
	r.Cleanup(c.close)
	return c
}

// close ends the connections.
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

// calls is a load of calls whose string comes back.
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
			continue // it was not sent: another connection takes it
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

// get returns a connection that takes calls.
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
	go l.conn.read() // until the socket is closed: by close, or by the peer
	return l.conn, nil
}
