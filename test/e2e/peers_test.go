package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// origin is an upstream behind Weft.
type origin struct {
	address  string
	server   *http.Server
	requests atomic.Int64 // number of requests
	opened   atomic.Int64 // number of accepted connections

	mu   sync.Mutex
	open map[net.Conn]http.ConnState // guarded by mu
}

// startUpstream starts an upstream on a free port.
func startUpstream(t *testing.T, h http.HandlerFunc) *origin {
	t.Helper()
	return startUpstreamAt(t, "127.0.0.1:0", h)
}

func startUpstreamAt(t *testing.T, address string, h http.HandlerFunc) *origin {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{address: l.Addr().String(), open: make(map[net.Conn]http.ConnState)}
	o.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.requests.Add(1)
			h(w, r)
		}),
		ConnState: o.connState,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := o.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("origin: %v", err)
		}
	}()
	t.Cleanup(func() { o.kill(); <-ended })
	return o
}

func (o *origin) connState(c net.Conn, s http.ConnState) {
	if s == http.StateNew {
		o.opened.Add(1)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(o.open, c)
	} else {
		o.open[c] = s
	}
}

// connections returns the number of open connections.
func (o *origin) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// kill stops the upstream as SIGKILL would: it resets or closes every connection immediately.
func (o *origin) kill() {
	o.mu.Lock()
	for c := range o.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // close with RST instead of FIN
		}
	}
	o.mu.Unlock()
	_ = o.server.Close() // may be closed already
}

// killAndWait kills o and waits until the kernel has closed both ends of its connections. On a busy
// machine the kernel delivers resets late, and Weft cannot retry a request that it has sent before.
func (o *origin) killAndWait(t *testing.T) {
	t.Helper()
	o.kill()
	_, port, err := net.SplitHostPort(o.address)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connections of the killed upstream are closed", func() bool { return !hasConnectionTo(t, port) })
}

// hasConnectionTo reports whether a TCP connection to a port is established.
func hasConnectionTo(t *testing.T, port string) bool {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/thread-self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const remote, state, established = 2, 3, "01"
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if strings.HasSuffix(fields[remote], fmt.Sprintf(":%04X", n)) && fields[state] == established {
			return true
		}
	}
	return false
}

// respondWith returns a handler that responds with text.
func respondWith(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// describeRequest responds with the request that it received, its headers sorted by name.
func describeRequest(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
	_ = r.Header.Write(w)
	_, _ = io.WriteString(w, "\n")
	_, _ = io.Copy(w, r.Body)
}

// startTCPServer starts a server that calls serve for each connection, and returns its address.
func startTCPServer(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close() // ends the loop
		conns.Wait()
	})
	return l.Addr().String()
}

// readRequest reads a request and its body from a raw connection.
func readRequest(r *bufio.Reader) (*http.Request, []byte, error) {
	request, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(request.Body)
	return request, body, err
}

// newClient returns a client with its own connections.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       4 * waitTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// httpResponse is a complete response.
type httpResponse struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// sendRequest sends a request and fails the test on an error. fields are "Name: value"; "Host" sets
// the authority.
func sendRequest(t *testing.T, c *http.Client, method, url, body string, fields ...string) httpResponse {
	t.Helper()
	resp, err := tryRequest(t.Context(), c, method, url, body, fields...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return resp
}

// tryRequest is sendRequest for requests that may fail: it returns the error.
func tryRequest(ctx context.Context, c *http.Client, method, url, body string, fields ...string) (httpResponse, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return httpResponse{}, err
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			request.Host = value
		} else {
			request.Header.Add(name, value)
		}
	}
	start := time.Now()
	response, err := c.Do(request)
	if err != nil {
		return httpResponse{}, err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return httpResponse{response.StatusCode, response.Header, string(got), time.Since(start)}, err
}

// rawConn is a raw connection of a client.
type rawConn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dialRaw(t *testing.T, address string) *rawConn {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, address, waitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return newRawConn(t, c)
}

func newRawConn(t *testing.T, c net.Conn) *rawConn {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() }) // the test may have closed the connection
	if err := c.SetDeadline(time.Now().Add(4 * waitTimeout)); err != nil {
		t.Fatal(err)
	}
	return &rawConn{Conn: c, t: t, r: bufio.NewReader(c)}
}

// send writes text with each \n replaced by \r\n.
func (c *rawConn) send(text string) *rawConn {
	c.t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// readResponse reads the response to a request with this method.
func (c *rawConn) readResponse(method string) (*http.Response, string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response, string(body)
}

// readToEnd reads until the connection ends, by a close or a reset.
func (c *rawConn) readToEnd() string {
	c.t.Helper()
	data, err := io.ReadAll(c.r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatal("the connection is still open")
	}
	return string(data)
}
