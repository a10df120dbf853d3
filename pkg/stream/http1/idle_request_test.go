package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// idleProxy has a client and a host in memory, and the record of their exchange.
type idleProxy struct {
	client, host net.Conn
	done         <-chan struct{} // closed when the downstream connection has ended
	record       *protocol.Record
	start        time.Time
}

func newIdleProxy(t *testing.T, options config.HTTP1Options, idleTimeout time.Duration) *idleProxy {
	local, host := net.Pipe()
	t.Cleanup(func() { _, _ = local.Close(), host.Close() })
	client := newUpstreamConn(network.NewConn(local), stream.UpstreamConnOptions{HTTP1: config.DefaultHTTP1Options(), OnRelease: func(bool) {}})
	p := &idleProxy{host: host, record: new(protocol.Record), start: time.Now()}
	p.client, p.done = serveInMemory(stream.ServerOptions{
		HTTP1:       options,
		IdleTimeout: idleTimeout,
		Service: protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			x.Record.UpstreamStart = time.Now()
			return client.Serve(ctx, x)
		}),
		Observe: func(x *protocol.Exchange) { *p.record = x.Record },
	})
	return p
}

// sendSlowly writes texts to conn, one minute apart.
//
//arch:clock in the bubbles of the tests of stalled requests
func sendSlowly(conn net.Conn, texts []string) {
	for _, text := range texts {
		time.Sleep(time.Minute)
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

// TestStalledRequestEnds verifies that the client gets a 408, or loses its connection within a
// response, if neither the request nor its response makes progress for the stream idle timeout.
func TestStalledRequestEnds(t *testing.T) {
	const responseHead = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	const length, chunked = "Content-Length: 4\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct {
		name        string
		idleTimeout time.Duration // stream_idle_timeout
		bodyTimeout time.Duration // body_timeout
		framing     string
		request     []string // pieces that the client sends, one minute apart
		hostWaits   bool     // the host waits for the complete request
		response    []string // pieces that the host sends, one minute apart
		status      int
		body        string
		reason      protocol.Reason
		after       time.Duration // time when the response or the connection ended
	}{
		{"idle after the first byte", 90 * time.Second, 0, length, []string{"a"}, true, nil, 408, "request idle for too long\n", protocol.RequestIdle, 150 * time.Second},
		{"idle from the beginning", 90 * time.Second, 0, length, nil, true, nil, 408, "request idle for too long\n", protocol.RequestIdle, 90 * time.Second},
		{"idle chunked body", 90 * time.Second, 0, chunked, []string{"1\r\na\r\n"}, true, nil, 408, "request idle for too long\n", protocol.RequestIdle, 150 * time.Second},
		{"slow but not idle", 90 * time.Second, 0, length, []string{"a", "b", "c", "d"}, true, []string{responseHead + "good"}, 200, "good", protocol.ReasonNone, 5 * time.Minute},
		{"response in progress", 90 * time.Second, 0, length, []string{"a"}, false, []string{responseHead + "g", "o", "o", "d"}, 200, "good", protocol.ReasonNone, 4 * time.Minute},
		{"response stalls, too", 90 * time.Second, 0, length, []string{"a"}, false, []string{responseHead + "g", "o"}, 200, "go", protocol.RequestIdle, 210*time.Second + lingerTimeout},
		{"shorter body timeout", 90 * time.Second, 30 * time.Second, length, nil, true, nil, 408, "request not received in time\n", protocol.RequestTimeout, 30 * time.Second},
		{"no timeout", 0, 0, length, []string{"a", "bcd"}, true, []string{responseHead + "good"}, 200, "good", protocol.ReasonNone, 3 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := config.DefaultHTTP1Options()
				options.StreamIdleTimeout, options.BodyTimeout = test.idleTimeout, test.bodyTimeout
				proxy := newIdleProxy(t, options, 0)
				go func() {
					r, err := http.ReadRequest(bufio.NewReader(proxy.host))
					if err != nil {
						return
					}
					if test.hostWaits {
						if _, err := io.Copy(io.Discard, r.Body); err != nil {
							return
						}
					} else {
						go io.Copy(io.Discard, r.Body)
					}
					sendSlowly(proxy.host, test.response)
				}()
				if _, err := io.WriteString(proxy.client, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+test.framing); err != nil {
					t.Fatal(err)
				}
				go sendSlowly(proxy.client, test.request)
				response, err := http.ReadResponse(bufio.NewReader(proxy.client), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if complete := test.status == 408 || test.reason == protocol.ReasonNone; (err == nil) != complete {
					t.Errorf("reading the body: %v, want it complete: %v", err, complete)
				}
				elapsed := time.Since(proxy.start).Round(time.Second)
				_ = proxy.client.Close()
				<-proxy.done
				if response.StatusCode != test.status || string(body) != test.body || proxy.record.Reason != test.reason || elapsed != test.after {
					t.Errorf("%d %q, %v after %v; want %d %q, %v after %v", response.StatusCode, body, proxy.record.Reason, elapsed,
						test.status, test.body, test.reason, test.after)
				}
			})
		})
	}
}

// TestStreamIdleTimeoutEndsTunnel verifies that the stream idle timeout ends a tunnel without bytes
// in either direction. Without that timeout, the idle timeout of the connection applies.
func TestStreamIdleTimeoutEndsTunnel(t *testing.T) {
	for _, test := range []struct {
		name                       string
		streamIdle, connectionIdle time.Duration
		client, host               []string // pieces, one minute apart
		reason                     protocol.Reason
		after                      time.Duration
	}{
		{"no bytes", 90 * time.Second, time.Hour, nil, nil, protocol.StreamIdle, 90 * time.Second},
		{"after bytes of the client", 90 * time.Second, time.Hour, []string{"a", "b", "c"}, nil, protocol.StreamIdle, 270 * time.Second},
		{"after bytes of the host", 90 * time.Second, time.Hour, nil, []string{"a", "b", "c", "d"}, protocol.StreamIdle, 330 * time.Second},
		{"after bytes of both", 90 * time.Second, 30 * time.Second, []string{"a"}, []string{"a", "b"}, protocol.StreamIdle, 210 * time.Second},
		{"no stream idle timeout", 0, time.Hour, nil, nil, protocol.StreamIdle, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := config.DefaultHTTP1Options()
				options.StreamIdleTimeout = test.streamIdle
				proxy := newIdleProxy(t, options, test.connectionIdle)
				go func() {
					if _, err := http.ReadRequest(bufio.NewReader(proxy.host)); err != nil {
						return
					}
					if _, err := io.WriteString(proxy.host, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"); err != nil {
						return
					}
					go io.Copy(io.Discard, proxy.host)
					sendSlowly(proxy.host, test.host)
				}()
				if _, err := io.WriteString(proxy.client, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				go sendSlowly(proxy.client, test.client)
				if _, err := io.Copy(io.Discard, proxy.client); err != nil {
					t.Error(err)
				}
				<-proxy.done
				if elapsed := time.Since(proxy.start).Round(time.Second); elapsed != test.after || proxy.record.Reason != test.reason {
					t.Errorf("reason %v after %v, want %v after %v", proxy.record.Reason, elapsed, test.reason, test.after)
				}
			})
		})
	}
}
