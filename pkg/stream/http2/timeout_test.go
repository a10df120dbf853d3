package http2

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// bubble is an engine between clients and a host in a synctest bubble: time passes instantly, and
// timeouts are exact. Connections are pipes. All requests go to the host.
type bubble struct {
	t        *testing.T
	engine   *Engine
	server   stream.Server
	upstream *UpstreamConn // the connection to the host
	host     *peer         // the other side of upstream; it has sent its settings
	start    time.Time
	records  chan observation
}

// inBubble runs a test in a bubble. change may be nil.
func inBubble(t *testing.T, change func(o *stream.ServerOptions, u *stream.UpstreamConnOptions), test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, engine: New(slog.New(slog.DiscardHandler), nil), records: make(chan observation, 100)}
		forwarding := new(forward)
		o := stream.ServerOptions{
			Listener: "test", Service: forwarding, Observe: b.observe, Log: slog.New(slog.DiscardHandler),
			HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(),
		}
		u := stream.UpstreamConnOptions{
			HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(), OnRelease: func(bool) {},
		}
		// Pipes have no buffer, and peers of a test do not always read.
		o.HTTP1.WriteTimeout, u.HTTP1.WriteTimeout = 0, 0
		if change != nil {
			change(&o, &u)
		}
		b.server = b.engine.Protocol().NewServer(o)
		t.Cleanup(b.engine.Close) // runs last, after the connections have ended
		local, remote := net.Pipe()
		b.upstream = newUpstreamConn(b.engine, network.NewConn(local), u)
		t.Cleanup(func() { _ = b.upstream.Close() })
		forwarding.conn.Store(b.upstream)
		b.host = b.peer(remote)
		b.host.must(b.host.fr.WriteSettings())
		b.start = time.Now()
		test(b)
	})
}

func (b *bubble) observe(x *protocol.Exchange) {
	b.records <- observation{
		x.Record.Reason, x.Response.Status, x.Record.Detail,
		x.Record.RequestBytes, x.Record.ResponseBytes, x.Response.Trailer.Len(),
	}
}

func (b *bubble) peer(conn net.Conn) *peer {
	p := newPeer(b.t, conn)
	p.readTimeout = time.Hour
	return p
}

// connect starts to serve a connection and returns its other side.
func (b *bubble) connect() net.Conn {
	local, remote := net.Pipe()
	conn := network.NewConn(local)
	var serving sync.WaitGroup
	serving.Go(func() {
		err := b.server.ServeConn(b.t.Context(), conn)
		for errors.Is(err, network.ErrPark) {
			err = conn.Handler.ServeConn(b.t.Context(), conn)
		}
		_ = conn.Close()
	})
	b.t.Cleanup(func() {
		_ = remote.Close()
		serving.Wait()
	})
	return remote
}

// dial connects as a client, and sends the preface and settings.
func (b *bubble) dial() *peer {
	b.t.Helper()
	p := b.peer(b.connect())
	if _, err := io.WriteString(p.conn, syntax.Preface); err != nil {
		b.t.Fatal(err)
	}
	p.must(p.fr.WriteSettings())
	return p
}

// awaitHostRequest reads the host's connection until the head of a request, and returns its stream.
// If readPreface is set, it reads the preface first.
func (b *bubble) awaitHostRequest(readPreface bool) uint32 {
	b.t.Helper()
	if readPreface {
		b.awaitPreface()
	}
	return b.host.awaitHead()
}

// awaitPreface reads the preface from the host's connection.
func (b *bubble) awaitPreface() {
	b.t.Helper()
	if _, err := io.ReadFull(b.host.in, make([]byte, len(syntax.Preface))); err != nil {
		b.t.Fatal(err)
	}
}

// checkElapsed fails the test unless exactly want has passed since b.start.
func (b *bubble) checkElapsed(want time.Duration, event string) {
	b.t.Helper()
	if got := time.Since(b.start); got != want {
		b.t.Errorf("%s after %v, want %v", event, got, want)
	}
}

func TestStreamIdleTimeoutIsExact(t *testing.T) {
	inBubble(t, func(o *stream.ServerOptions, u *stream.UpstreamConnOptions) {
		o.HTTP2.StreamIdleTimeout, u.HTTP2.StreamIdleTimeout = time.Minute, 0
	}, func(b *bubble) {
		p := b.dial()
		p.request(1, false, ":method", "POST")
		id := b.awaitHostRequest(true)
		b.host.headers(id, false, ":status", "200")
		p.awaitFields(1)
		time.Sleep(40 * time.Second)
		p.must(p.fr.WriteData(1, false, []byte("still here")))
		for { // until the client's bytes arrive
			if _, ok := b.host.next().(*http2.DataFrame); ok {
				break
			}
		}
		p.awaitReset(1)
		b.checkElapsed(100*time.Second, "the client's stream was reset")
		if code := b.host.awaitReset(id); code != http2.ErrCodeCancel {
			t.Errorf("the host's stream was reset with %v, want CANCEL", code)
		}
		if o := <-b.records; o.reason != protocol.RequestIdle {
			t.Errorf("recorded %+v, want %v", o, protocol.RequestIdle)
		}
	})
}

func TestDeadlineResetsHostStream(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		p := b.dial()
		p.request(1, true, ":method", "POST", "content-type", "application/grpc", "te", "trailers", "grpc-timeout", "90S")
		id := b.awaitHostRequest(true)
		if head := p.awaitFields(1); head["grpc-status"] != "4" {
			t.Errorf("%v, want grpc-status 4", head)
		}
		b.checkElapsed(90*time.Second, "the response arrived")
		if code := b.host.awaitReset(id); code != http2.ErrCodeCancel {
			t.Errorf("the host's stream was reset with %v, want CANCEL", code)
		}
		if o := <-b.records; o.reason != protocol.UpstreamTimeout {
			t.Errorf("recorded %+v, want %v", o, protocol.UpstreamTimeout)
		}
	})
}

// TestResetAtDeadlineIsTimeout verifies that the fault of a stream that the host has reset does not
// depend on whether the reset or the timer of the deadline comes first.
func TestResetAtDeadlineIsTimeout(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name     string
		deadline time.Time
		code     syntax.Code
		want     protocol.Reason
	}{
		{"no deadline", time.Time{}, syntax.Cancel, protocol.UpstreamReset},
		{"before the deadline", now.Add(1), syntax.Cancel, protocol.UpstreamReset},
		{"at the deadline", now, syntax.Cancel, protocol.UpstreamTimeout},
		{"after the deadline", now.Add(-1), syntax.NoError, protocol.UpstreamTimeout},
		{"refused after the deadline", now.Add(-1), syntax.RefusedStream, protocol.ConnectFailure},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := new(UpstreamConn).resetFault(&muxStream{deadline: tt.deadline}, tt.code, now)
			if got := protocol.ReasonOf(err); got != tt.want {
				t.Errorf("resetFault = %v with reason %v, want %v", err, got, tt.want)
			}
		})
	}
}

func TestPerTryTimeoutEndsWithHead(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline time.Duration // of the exchange; 0: none
		reset    time.Duration // when the response is reset; 0: it ends with its body
	}{
		{"body before the deadline", 3 * time.Second, 0},
		{"no deadline", 0, 0},
		{"body after the deadline", 1500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, nil, func(b *bubble) {
				done := make(chan error, 1)
				var body string
				go func() {
					var err error
					_, body, err = sendRequest(b.upstream, func(x *protocol.Exchange) {
						x.PerTryDeadline = b.start.Add(time.Second)
						if tt.deadline > 0 {
							x.Deadline = b.start.Add(tt.deadline)
						}
					})
					done <- err
				}()
				id := b.awaitHostRequest(true)
				b.host.headers(id, false, ":status", "200")
				if tt.reset > 0 {
					if err := <-done; protocol.ReasonOf(err) != protocol.UpstreamTimeout {
						t.Errorf("ended with %v, want %v", err, protocol.UpstreamTimeout)
					}
					b.checkElapsed(tt.reset, "the response was reset")
					return
				}
				time.Sleep(2 * time.Second)
				b.host.must(b.host.fr.WriteData(id, true, []byte("late")))
				if err := <-done; err != nil || body != "late" {
					t.Errorf("body %q, %v; want late", body, err)
				}
			})
		})
	}
}

func TestPingKeepalive(t *testing.T) {
	configure := func(o *stream.ServerOptions, u *stream.UpstreamConnOptions) {
		u.HTTP2.PingInterval, u.HTTP2.PingTimeout = 15*time.Second, 10*time.Second
	}
	t.Run("acknowledged", func(t *testing.T) {
		inBubble(t, configure, func(b *bubble) {
			p := b.dial()
			p.request(1, true)
			id := b.awaitHostRequest(true)
			for i := range 3 {
				f, ok := b.host.next().(*http2.PingFrame)
				if !ok || f.IsAck() {
					t.Fatalf("got %v, want a PING", f)
				}
				rtt := 40 * time.Millisecond
				b.checkElapsed(time.Duration(i+1)*15*time.Second+time.Duration(i)*rtt, "a PING arrived")
				time.Sleep(rtt)
				b.host.must(b.host.fr.WritePing(true, f.Data))
			}
			b.host.headers(id, true, ":status", "200")
			if got := p.awaitFields(1)[":status"]; got != "200" {
				t.Errorf("status %s, want 200", got)
			}
			if got := b.upstream.RTT(); got != 40*time.Millisecond {
				t.Errorf("RTT = %v, want 40ms", got)
			}
		})
	})
	t.Run("not acknowledged", func(t *testing.T) {
		inBubble(t, configure, func(b *bubble) {
			p := b.dial()
			p.request(1, true)
			b.awaitHostRequest(true)
			b.host.next()
			b.checkElapsed(15*time.Second, "the PING arrived")
			if got := p.awaitFields(1)[":status"]; got != "502" {
				t.Errorf("status %s, want 502", got)
			}
			b.checkElapsed(25*time.Second, "the connection was closed")
		})
	})
}

func TestIncompleteFrameTimeout(t *testing.T) {
	for name, input := range map[string]string{
		"partial preface":      syntax.Preface[:10],
		"partial frame header": syntax.Preface + "\x00\x00\x06",
		"partial SETTINGS":     syntax.Preface + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) { o.HTTP1.BodyTimeout = 20 * time.Second }, func(b *bubble) {
				conn := b.connect()
				if _, err := io.WriteString(conn, input); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Fatal(err)
				}
				b.checkElapsed(20*time.Second, "the connection was closed")
			})
		})
	}
}

func TestWriteTimeout(t *testing.T) {
	inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) { o.HTTP1.WriteTimeout = 30 * time.Second }, func(b *bubble) {
		p := b.dial()
		p.request(1, true)
		id := b.awaitHostRequest(true)
		b.host.headers(id, false, ":status", "200")
		b.host.must(b.host.fr.WriteData(id, true, make([]byte, 10<<10)))
		time.Sleep(2 * time.Minute) // the client reads none of the response
		data, err := io.ReadAll(p.conn)
		if err != nil || len(data) > 0 {
			t.Errorf("read %d bytes, %v; want none", len(data), err)
		}
	})
}

func TestBlockedStreamIdleTimeout(t *testing.T) {
	inBubble(t, func(o *stream.ServerOptions, u *stream.UpstreamConnOptions) {
		o.HTTP2.StreamIdleTimeout, u.HTTP2.StreamIdleTimeout = time.Minute, 0
	}, func(b *bubble) {
		p := b.dial()
		p.request(1, true)
		id := b.awaitHostRequest(true)
		b.host.headers(id, false, ":status", "200")
		sent := make(chan error, 1)
		go func() {
			for range 6 { // more than the client's window
				if err := b.host.fr.WriteData(id, false, make([]byte, 16<<10)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		p.awaitReset(1)
		b.checkElapsed(time.Minute, "the client's stream was reset")
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if code := b.host.awaitReset(id); code != http2.ErrCodeCancel {
			t.Errorf("the host's stream was reset with %v, want CANCEL", code)
		}
	})
}

func TestResetIsForwardedAndHoldsSlot(t *testing.T) {
	const maxStreams = 4
	inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
		o.HTTP2.MaxConcurrentStreams = maxStreams
	}, func(b *bubble) {
		p := b.dial()
		sendRequests := func(firstID uint32) {
			for i := range uint32(maxStreams) {
				p.request(firstID+2*i, true)
			}
		}
		var ids []uint32
		sendRequests(1)
		for i := range maxStreams {
			ids = append(ids, b.awaitHostRequest(i == 0))
		}
		time.Sleep(60 * time.Millisecond) // resets this late are not charged
		for i := range uint32(maxStreams) {
			p.must(p.fr.WriteRSTStream(1+2*i, http2.ErrCodeCancel))
			if code := b.host.awaitReset(ids[i]); code != http2.ErrCodeCancel {
				t.Errorf("the host's stream was reset with %v, want CANCEL", code)
			}
		}
		sendRequests(9)
		for i := range uint32(maxStreams) {
			if code := p.awaitReset(9 + 2*i); code != http2.ErrCodeRefusedStream {
				t.Errorf("stream %d was reset with %v, want REFUSED_STREAM", 9+2*i, code)
			}
		}
		time.Sleep(100 * time.Millisecond)
		sendRequests(17)
		for range maxStreams {
			if b.awaitHostRequest(false) == 0 {
				t.Fatal("the connection to the host ended")
			}
		}
		for range maxStreams {
			if o := <-b.records; o.reason != protocol.ReasonDownstreamDisconnect {
				t.Errorf("recorded %+v, want %v", o, protocol.ReasonDownstreamDisconnect)
			}
		}
	})
}

func TestHostMayResetClosedStreams(t *testing.T) {
	inBubble(t, nil, func(b *bubble) {
		p := b.dial()
		for i := range uint32(2) {
			p.request(1+2*i, true)
			id := b.awaitHostRequest(i == 0)
			b.host.headers(id, true, ":status", "200")
			if got := p.awaitFields(1 + 2*i)[":status"]; got != "200" {
				t.Errorf("status %s, want 200", got)
			}
			for range 1000 { // one for each frame that was in flight
				b.host.must(b.host.fr.WriteRSTStream(id, http2.ErrCodeStreamClosed))
			}
		}
	})
}
