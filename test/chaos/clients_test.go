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

// httpClient is an HTTP client.
type httpClient struct {
	client    *http.Client
	transport *http.Transport
	base      string // for example "http://127.0.0.1:1"
}

// newHTTPClient returns a client of the address for HTTP/1.1, or for HTTP/2 with prior knowledge if
// http2 is true.
func (r *testRun) newHTTPClient(address string, http2 bool, dial dialer) *httpClient {
	t := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetUnencryptedHTTP2(http2)
	return r.wrapTransport(t, "http://"+address)
}

// newTLSClient returns a TLS client, for HTTP/2 if http2 is true. If newConns is true, it opens a
// connection for each request.
func (r *testRun) newTLSClient(address string, config *tls.Config, http2, newConns bool) *httpClient {
	t := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 64, DisableKeepAlives: newConns, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetHTTP2(http2)
	return r.wrapTransport(t, "https://"+address)
}

func (r *testRun) wrapTransport(t *http.Transport, base string) *httpClient {
	r.Cleanup(t.CloseIdleConnections)
	return &httpClient{client: &http.Client{Transport: t}, transport: t, base: base}
}

// hostHeader is the response header that identifies the host.
const hostHeader = "X-Host"

// bodyFor returns the response body of hosts for a token: size bytes that identify the token.
func bodyFor(token string, size int) string {
	return strings.Repeat(token+";", size/(len(token)+1)+1)[:size]
}

// request sends a request with a token and verifies the complete response body. A truncated
// response must cause an error of the client. A complete body with other content is a failure of
// the kind wrongResponse. The path may have a query. responder is the host that responded.
func (c *httpClient) request(ctx context.Context, method, path, token string, size int) (responder string, err error) {
	if !strings.Contains(path, "?") {
		path += "?"
	}
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s%s&token=%s&size=%d", c.base, path, token, size), http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return "", transportFailure(err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read to the end
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", newFailure(fmt.Sprint(response.StatusCode), "%.200q", body)
	}
	if err != nil && ctx.Err() == nil {
		return "", newFailure("broken off", "after %d bytes of %d: %w", len(body), size, err)
	}
	if err != nil {
		return "", transportFailure(err)
	}
	responder = response.Header.Get(hostHeader)
	if string(body) != bodyFor(token, size) {
		return responder, newFailure(wrongResponse, "%s %s for %s of %s: %d bytes %.60q, want %d", method, path, token, responder, len(body), body, size)
	}
	return responder, nil
}

// getLoad returns a load of GETs of a path with responses of 2 KB.
func (c *httpClient) getLoad(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return c.request(ctx, http.MethodGet, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
	}}
}

// postLoad returns a load of POSTs, which must not be repeated.
func (c *httpClient) postLoad(name, path string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return c.request(ctx, http.MethodPost, path, fmt.Sprintf("%s-%d", name, n), 2<<10)
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

// grpcPath is the path of the gRPC method of the hosts, which returns the message of the request.
const grpcPath = "/chaos.Echo/Call"

// grpcLoad returns a load of unary calls that expect their message back.
func (c *httpClient) grpcLoad(name string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return c.callGRPC(ctx, bodyFor(fmt.Sprintf("%s-%d", name, n), 1<<10))
	}}
}

// callGRPC makes a unary call and verifies that the response has the status 0 and the same message.
func (c *httpClient) callGRPC(ctx context.Context, text string) (responder string, err error) {
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+grpcPath, bytes.NewReader(message))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := c.client.Do(request)
	if err != nil {
		return "", transportFailure(err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read to the end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", transportFailure(err)
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" {
		status = response.Header.Get("Grpc-Status")
	}
	responder = response.Header.Get(hostHeader)
	switch {
	case status == "":
		return responder, newFailure("no status", "%d of %s", response.StatusCode, responder)
	case status != "0":
		return responder, newFailure("grpc "+status, "%s%s", response.Header.Get("Grpc-Message"), response.Trailer.Get("Grpc-Message"))
	case !bytes.Equal(body, message):
		return responder, newFailure(wrongResponse, "call of %d bytes: status %d, %.60q", len(message), len(body), body)
	}
	return responder, nil
}

// dubboClient is a Dubbo client with four connections. Each carries many concurrent calls.
type dubboClient struct {
	protocol *frame.Protocol
	address  string
	dial     dialer
	slots    [4]connSlot
}

// connSlot holds one connection of a dubboClient.
type connSlot struct {
	mu   sync.Mutex
	conn *rpcConn // nil: not open; guarded by mu
}

// newDubboClient returns a client of the address.
func (r *testRun) newDubboClient(address string, dial dialer) *dubboClient {
	p, err := frame.Find("dubbo")
	if err != nil {
		r.Fatal(err)
	}
	c := &dubboClient{protocol: p, address: address, dial: dial}
	r.Cleanup(c.close)
	return c
}

// close closes the connections.
func (c *dubboClient) close() {
	for i := range c.slots {
		slot := &c.slots[i]
		slot.mu.Lock()
		if slot.conn != nil {
			slot.conn.closeWithError(net.ErrClosed)
			slot.conn = nil
		}
		slot.mu.Unlock()
	}
}

// callLoad returns a load of calls that expect their string back.
func (c *dubboClient) callLoad(name string, rate float64) load {
	return load{name: name, rate: rate, call: func(ctx context.Context, n int) (string, error) {
		return "", c.call(ctx, n)
	}}
}

func (c *dubboClient) call(ctx context.Context, n int) error {
	id := uint64(n) + 1
	for {
		conn, err := c.slots[n%len(c.slots)].get(ctx, c)
		if err != nil {
			return transportFailure(err)
		}
		response, err := conn.send(id, c.protocol.AppendRequest(nil, id, frame.Text{Token: id}))
		if errors.Is(err, errNoMoreCalls) {
			continue // the call was not sent: use another connection
		}
		if err != nil {
			return transportFailure(err)
		}
		select {
		case resp := <-response:
			return resp.check(c.protocol, id)
		case <-ctx.Done():
			conn.dropCall(id)
			return transportFailure(ctx.Err())
		}
	}
}

// get returns a connection that accepts calls.
func (slot *connSlot) get(ctx context.Context, c *dubboClient) (*rpcConn, error) {
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.conn != nil && slot.conn.acceptsCalls() {
		return slot.conn, nil
	}
	socket, err := c.dial(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	slot.conn = &rpcConn{socket: socket, pending: map[uint64]chan rpcResponse{}}
	go slot.conn.readLoop() // ends when close or Weft closes the socket
	return slot.conn, nil
}
