package http1

import (
	"bufio"
	"context"
	"errors"
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

// serveInMemory serves one connection in memory, in the fake time of synctest, and returns its
// other end. done is closed when the connection has ended.
func serveInMemory(o stream.ServerOptions) (client net.Conn, done <-chan struct{}) {
	local, client := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn := network.NewConn(local)
		defer conn.Close()
		s := NewServer(o)
		for {
			if err := s.ServeConn(context.Background(), conn); !errors.Is(err, network.ErrPark) {
				return
			}
		}
	}()
	return client, served
}

// echo responds with the request body.
var echo = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
	text := ""
	if x.Request.Body != nil {
		body, err := io.ReadAll(x.Request.Body)
		if err != nil {
			return err
		}
		text = string(body)
	}
	x.LocalReply(200, "text/plain", text)
	return nil
})

//arch:clock the services of the table run in bubbles
func TestDownstreamTimeouts(t *testing.T) {
	options := config.DefaultHTTP1Options()
	options.HeadTimeout, options.BodyTimeout, options.WriteTimeout = 10*time.Second, 20*time.Second, 30*time.Second
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
	slowService := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		<-time.After(time.Minute)
		return echo(ctx, x)
	})
	watchingService := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		stop := x.Downstream.OnDisconnect(func() {})
		<-time.After(time.Minute)
		stop()
		x.LocalReply(200, "", "")
		return nil
	})
	type step struct {
		wait time.Duration
		send string
	}
	for _, test := range []struct {
		name    string
		service protocol.Service
		steps   []step
		want    string        // prefix of the responses
		after   time.Duration // time when the connection ended
	}{
		{"idle and parked after an exchange", echo, []step{{0, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"}}, "HTTP/1.1 200 ", time.Hour},
		{"idle and parked, then another exchange", echo, []step{
			{0, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"}, {time.Minute, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"},
		}, "HTTP/1.1 200 ", time.Minute},
		{"slow head", echo, []step{{0, "GET / HT"}, {9 * time.Second, "TP"}}, "HTTP/1.1 408 ", 10*time.Second + lingerTimeout},
		{"slow head after an exchange", echo, []step{{0, "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET"}},
			"HTTP/1.1 200 ", 10*time.Second + lingerTimeout},
		{"slow body", echo, []step{{0, post + "he"}, {19 * time.Second, "l"}}, "HTTP/1.1 408 ", 39*time.Second + lingerTimeout},
		{"slow body within the timeout", echo, []step{{0, post + "he"}, {19 * time.Second, "l"}, {19 * time.Second, "lo"}},
			"HTTP/1.1 200 ", 38*time.Second + time.Hour},
		{"body read late", slowService, []step{{0, post}, {70 * time.Second, "hello"}}, "HTTP/1.1 200 ", 70*time.Second + time.Hour},
		{"missing body after OnDisconnect", watchingService, []step{{0, post}}, "HTTP/1.1 200 ", smallBodyTimeout + time.Minute + 2*lingerTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				client, done := serveInMemory(stream.ServerOptions{HTTP1: options, Service: test.service, IdleTimeout: time.Hour})
				got := make(chan string)
				go func() {
					b, _ := io.ReadAll(client)
					got <- string(b)
				}()
				for _, s := range test.steps {
					<-time.After(s.wait)
					if _, err := io.WriteString(client, s.send); err != nil {
						t.Errorf("sending %q: %v", s.send, err)
					}
				}
				<-done
				if d := time.Since(start); d != test.after {
					t.Errorf("the connection ended after %v, want %v", d, test.after)
				}
				if responses := <-got; !strings.HasPrefix(responses, test.want) {
					t.Errorf("the client got %q, want %q", responses, test.want)
				}
			})
		})
	}
}

func TestStalledClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reasons := make(chan protocol.Reason, 1)
		o := stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: echo, Observe: func(x *protocol.Exchange) { reasons <- x.Record.Reason }}
		start := time.Now()
		client, done := serveInMemory(o)
		defer client.Close()
		io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-done
		if d := time.Since(start); d < o.HTTP1.WriteTimeout || d > 2*o.HTTP1.WriteTimeout {
			t.Errorf("the connection ended after %v, want one to two write timeouts of %v", d, o.HTTP1.WriteTimeout)
		}
		if r := <-reasons; r != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded %v, want the client disconnect", r)
		}
	})
}

//arch:clock the scripts of the table run in bubbles
func TestUpstreamTimeouts(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
	longBody := protocol.NewStringBody(strings.Repeat("x", 100<<10))
	for _, test := range []struct {
		name     string
		deadline time.Duration
		body     protocol.Body
		script   func(c net.Conn, r *bufio.Reader)
		want     protocol.Reason
		after    time.Duration
	}{
		{"no response", 10 * time.Second, nil, func(_ net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) },
			protocol.UpstreamTimeout, 10 * time.Second},
		{"incomplete head", 10 * time.Second, nil, func(c net.Conn, r *bufio.Reader) {
			r.ReadString('\n')
			go io.Copy(io.Discard, r)
			io.WriteString(c, "HTTP/1.1 200")
		}, protocol.UpstreamTimeout, 10 * time.Second},
		{"incomplete body", 10 * time.Second, nil, func(c net.Conn, r *bufio.Reader) {
			r.ReadString('\n')
			go io.Copy(io.Discard, r)
			io.WriteString(c, head+"he")
		}, protocol.UpstreamTimeout, 10 * time.Second},
		{"slow response without a deadline", 0, nil, func(c net.Conn, r *bufio.Reader) {
			r.ReadString('\n')
			go io.Copy(io.Discard, r)
			<-time.After(time.Hour)
			io.WriteString(c, head+"he")
			<-time.After(time.Hour)
			io.WriteString(c, "llo")
		}, protocol.ReasonNone, 2 * time.Hour},
		{"unread request", 0, nil, func(net.Conn, *bufio.Reader) {}, protocol.UpstreamTimeout, 60 * time.Second},
		{"unread request with a deadline", 5 * time.Second, nil, func(net.Conn, *bufio.Reader) {},
			protocol.UpstreamTimeout, 5 * time.Second},
		{"request read slowly, with a deadline", 5 * time.Second, nil, func(c net.Conn, _ *bufio.Reader) {
			for range 4 {
				<-time.After(time.Second)
				c.Read(make([]byte, 1))
			}
		}, protocol.UpstreamTimeout, 5 * time.Second},
		{"unread head of an upload, with a deadline", 5 * time.Second, longBody, func(net.Conn, *bufio.Reader) {},
			protocol.UpstreamTimeout, 5 * time.Second},
		{"unread body", 0, longBody, func(_ net.Conn, r *bufio.Reader) {
			for line := ""; line != "\r\n"; {
				line, _ = r.ReadString('\n')
			}
		}, protocol.UpstreamTimeout, 60*time.Second + earlyResponseTimeout},
		{"unread body with a deadline", 5 * time.Second, longBody, func(_ net.Conn, r *bufio.Reader) {
			for line := ""; line != "\r\n"; {
				line, _ = r.ReadString('\n')
			}
		}, protocol.UpstreamTimeout, 5*time.Second + uploadGrace},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, peer := net.Pipe()
				defer peer.Close()
				defer local.Close()
				c, reusable := newTestUpstreamConn(network.NewConn(local))
				go test.script(peer, bufio.NewReaderSize(peer, 16))
				x := newExchange("POST", test.body)
				x.Request.ContentLength = 0
				if test.body != nil {
					x.Request.ContentLength = int64(test.body.Buffered())
				}
				start := time.Now()
				if test.deadline > 0 {
					x.Deadline = start.Add(test.deadline)
				}
				err := c.Serve(context.Background(), x)
				if err == nil {
					_, err = io.ReadAll(x.Response.Body)
				}
				if got := protocol.ReasonOf(err); got != test.want {
					t.Errorf("reason = %v (%v), want %v", got, err, test.want)
				}
				d := time.Since(start)
				// A write fails after one to two write timeouts.
				if d > test.after || d < test.after/2 || (test.deadline > 0 || test.want == protocol.ReasonNone) && d != test.after {
					t.Errorf("took %v, want %v", d, test.after)
				}
				x.ResetResponse()
				if got := <-reusable; got != (test.want == protocol.ReasonNone) {
					t.Errorf("reusable = %v, want %v", got, test.want == protocol.ReasonNone)
				}
			})
		})
	}
}

// TestAbortedBodyCannotBeRewound verifies that an aborted request body is not sent again.
func TestAbortedBodyCannotBeRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rewound := make(chan bool, 1)
		service := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			read := make(chan error)
			go func() {
				_, err := x.Request.Body.Read(make([]byte, 10))
				read <- err
			}()
			synctest.Wait() // the engine waits for the client
			_ = x.Request.Body.Close()
			if err := <-read; err == nil {
				t.Error("a read of an aborted body succeeded")
			}
			rewound <- x.Request.Body.(protocol.Rewinder).Rewind()
			return protocol.NewFault(protocol.UpstreamReset, nil)
		})
		client, done := serveInMemory(stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: service})
		go io.WriteString(client, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
		got, _ := io.ReadAll(client)
		if !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || !strings.Contains(string(got), "Connection: close\r\n") {
			t.Errorf("the client got %q, want a 502 with Connection: close", got)
		}
		if <-rewound {
			t.Error("Rewind = true, want false")
		}
		<-done
	})
}

// TestSmallBodyIsAwaitedBriefly verifies that a small body that arrives shortly after its head is
// buffered before the service is called, and can be rewound. The engine does not wait for a later
// or larger body.
func TestSmallBodyIsAwaitedBriefly(t *testing.T) {
	const ms = time.Millisecond
	type piece struct {
		after time.Duration // time since the previous piece
		text  string
	}
	large := strings.Repeat("x", 2*requestBufferSize)
	for _, test := range []struct {
		name     string
		headers  string
		pieces   []piece
		calledAt time.Duration // time when the engine calls the service
		buffered int           // body bytes available at that time
	}{
		{"with the head", "", []piece{{0, "hello"}}, 0, 5},
		{"shortly after the head", "", []piece{{ms, "hello"}}, ms, 5},
		{"in pieces", "", []piece{{0, "he"}, {ms, "l"}, {2 * ms, "lo"}}, 3 * ms, 5},
		{"larger than the free space of the head buffer", "", []piece{{0, "he"}, {ms, large}}, ms, 2 + len(large)},
		{"late", "", []piece{{smallBodyTimeout + ms, "hello"}}, smallBodyTimeout, 0},
		{"partly late", "", []piece{{0, "he"}, {smallBodyTimeout + ms, "llo"}}, smallBodyTimeout, 2},
		{"large", "", []piece{{0, "he"}, {ms, strings.Repeat("x", maxInlineBody)}}, 0, 2},
		{"client expects 100-continue", "Expect: 100-continue\r\n", []piece{{ms, "hello"}}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b strings.Builder
				for _, p := range test.pieces {
					b.WriteString(p.text)
				}
				body := b.String()
				start := time.Now()
				service := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					if got := time.Since(start); got != test.calledAt {
						t.Errorf("service called after %v, want %v", got, test.calledAt)
					}
					if got := x.Request.Body.Buffered(); got != test.buffered {
						t.Errorf("Buffered = %d, want %d", got, test.buffered)
					}
					err := echo(ctx, x)
					rewound := x.Request.Body.(protocol.Rewinder).Rewind()
					if complete := test.buffered == len(body); rewound != complete {
						t.Errorf("Rewind = %v, want %v", rewound, complete)
					}
					if rewound {
						err = echo(ctx, x)
					}
					return err
				})
				client, done := serveInMemory(stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: service})
				go func() {
					text := "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + test.headers + "Content-Length: " + decimal(len(body)) + "\r\n\r\n"
					for _, p := range test.pieces {
						if p.after > 0 {
							io.WriteString(client, text)
							text = ""
							<-time.After(p.after)
						}
						text += p.text
					}
					io.WriteString(client, text)
				}()
				got, _ := io.ReadAll(client)
				if !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.HasSuffix(string(got), "\r\n\r\n"+body) {
					t.Errorf("the client got %q, want status 200 and the body", got)
				}
				<-done
			})
		})
	}
}

// TestUnreadChunkedBodyKeepsConnection verifies that a local reply keeps the connection if the
// unread chunked body is small and ends soon.
func TestUnreadChunkedBodyKeepsConnection(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
	const nextRequest = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	chunk := "2000\r\n" + strings.Repeat("x", 0x2000) + "\r\n"
	for _, test := range []struct {
		name, head, body string
		wait             time.Duration // between head and body
		reusable         bool
	}{
		{"with the head", post + "\r\n", "5\r\nhello\r\n0\r\n\r\n", 0, true},
		{"shortly after the head", post + "\r\n", "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", time.Millisecond, true},
		{"within the discard limit", post + "\r\n", strings.Repeat(chunk, 30) + "0\r\n\r\n", time.Millisecond, true},
		{"beyond the discard limit", post + "\r\n", strings.Repeat(chunk, 40) + "0\r\n\r\n", time.Millisecond, false},
		{"late", post + "\r\n", "5\r\nhello\r\n0\r\n\r\n", smallBodyTimeout + time.Millisecond, false},
		{"partly late", post + "\r\n5\r\nhello\r\n", "0\r\n\r\n", smallBodyTimeout + time.Millisecond, false},
		{"malformed", post + "\r\n", "hello\r\n0\r\n\r\n", 0, false},
		{"client expects 100-continue", post + "Expect: 100-continue\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", time.Millisecond, false},
		{"client sends Connection: close", post + "Connection: close\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, done := serveInMemory(stream.ServerOptions{
					HTTP1: config.DefaultHTTP1Options(),
					Service: protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
						x.LocalReply(404, "text/plain", "not found")
						return nil
					}),
				})
				go func() {
					io.WriteString(client, test.head)
					<-time.After(test.wait)
					io.WriteString(client, test.body+nextRequest)
				}()
				got, _ := io.ReadAll(client)
				want := 1
				if test.reusable {
					want = 2
				}
				if n := strings.Count(string(got), "HTTP/1.1 404 "); n != want {
					t.Errorf("%d responses, want %d: %q", n, want, got)
				}
				if n := strings.Count(string(got), "Connection: close\r\n"); n != 1 {
					t.Errorf("%d responses with Connection: close, want 1: %q", n, got)
				}
				<-done
			})
		})
	}
}

// slowBody is a body that returns a byte every ten seconds until remaining is 0, and then err.
type slowBody struct {
	remaining int
	err       error
}

//arch:clock in bubbles
func (b *slowBody) Read(p []byte) (int, error) {
	if b.remaining == 0 {
		return 0, b.err
	}
	<-time.After(10 * time.Second)
	b.remaining--
	return copy(p, "x"), nil
}

func (b *slowBody) Buffered() int { return 0 }
func (b *slowBody) Close() error  { return nil }

// countingConn counts the reads of a connection.
type countingConn struct {
	net.Conn
	reads int
}

func (c *countingConn) Read(p []byte) (int, error) { c.reads++; return c.Conn.Read(p) }

// disconnectingClient is a Downstream whose client disconnects some time after OnDisconnect was
// called.
type disconnectingClient struct{ after time.Duration }

func (disconnectingClient) SendInterim(int, *protocol.Header) error { return nil }
func (c disconnectingClient) OnDisconnect(disconnected func()) func() {
	timer := time.AfterFunc(c.after, disconnected)
	return func() { timer.Stop() }
}

// TestUploadIsAwaitedWithoutPolling verifies that the goroutine that waits for a response does not
// poll during an upload, and that it watches for a client disconnect after the upload.
func TestUploadIsAwaitedWithoutPolling(t *testing.T) {
	const responseHead = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
	bodyErr := protocol.NewFault(protocol.RequestTimeout, nil)
	for _, test := range []struct {
		name            string
		bodyErr         error         // end of the request body, after a minute
		responseStart   string        // start of the response
		responseRest    string        // rest of the response, after two minutes
		disconnectAfter time.Duration // time between OnDisconnect and the disconnect
		want            protocol.Reason
		after           time.Duration
	}{
		{"response after the body", io.EOF, "", responseHead + "hello", time.Hour, protocol.ReasonNone, 2 * time.Minute},
		{"response concurrent with the body", io.EOF, responseHead + "he", "llo", time.Hour, protocol.ReasonNone, 2 * time.Minute},
		{"client disconnects after its body", io.EOF, "", responseHead + "hello", 10 * time.Second, protocol.ReasonDownstreamDisconnect, 70 * time.Second},
		{"request body fails", bodyErr, "", responseHead + "hello", time.Hour, protocol.RequestTimeout, time.Minute},
		{"request body fails during the response", bodyErr, responseHead + "he", "llo", time.Hour, protocol.RequestTimeout, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, peer := net.Pipe()
				defer peer.Close()
				conn := &countingConn{Conn: local}
				c, reusable := newTestUpstreamConn(network.NewConn(conn))
				defer c.Close()
				go io.Copy(io.Discard, peer)
				go func() {
					io.WriteString(peer, test.responseStart)
					<-time.After(2 * time.Minute)
					io.WriteString(peer, test.responseRest)
				}()
				x := newExchange("POST", &slowBody{6, test.bodyErr})
				x.Downstream = disconnectingClient{test.disconnectAfter}
				start := time.Now()
				err := c.Serve(context.Background(), x)
				body := []byte(nil)
				if err == nil {
					body, err = io.ReadAll(x.Response.Body)
				}
				if got := protocol.ReasonOf(err); got != test.want || test.want == protocol.ReasonNone && string(body) != "hello" {
					t.Errorf("body %q, reason %v (%v), want %v", body, got, err, test.want)
				}
				if d := time.Since(start); d != test.after {
					t.Errorf("took %v, want %v", d, test.after)
				}
				if conn.reads > 5 { // polling would need hundreds
					t.Errorf("%d reads, want at most 5", conn.reads)
				}
				x.ResetResponse()
				if got := <-reusable; got != (test.want == protocol.ReasonNone) {
					t.Errorf("reusable = %v, want %v", got, test.want == protocol.ReasonNone)
				}
				c.Close()
				<-time.After(2 * time.Minute) // lets the goroutine that writes the response end
			})
		})
	}
}
