package http2

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// connIDService returns a service that responds with the ID of the connection.
func connIDService() protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", fmt.Sprint(x.Meta.Conn.ID))
		return nil
	})
}

func withMaxRequests(n int) func(o *stream.ServerOptions) {
	return func(o *stream.ServerOptions) { o.HTTP1.MaxRequestsPerConnection = n }
}

// TestMaxRequestsPerConnection verifies that a client gets the shutdown notice with the last
// request that the limit allows, and that requests it sends before it has seen the notice are
// served.
func TestMaxRequestsPerConnection(t *testing.T) {
	h := newHeldService()
	r := newRig(t, h, withMaxRequests(3))
	p := r.dial()
	for _, id := range []uint32{1, 3} {
		p.request(id, true)
		<-h.started
	}
	p.must(p.fr.WritePing(false, [8]byte{1}))
	if f, ok := p.next().(*http2.PingFrame); !ok || !f.IsAck() {
		t.Fatalf("before the third request: %v, want only the acknowledgement of PING", f)
	}
	p.request(5, true)
	<-h.started
	first, ok := p.next().(*http2.GoAwayFrame)
	if !ok || first.LastStreamID != 1<<31-1 || first.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with the maximum stream identifier", first)
	}
	ping, ok := p.next().(*http2.PingFrame)
	if !ok {
		t.Fatal("no PING after the first GOAWAY")
	}
	p.request(7, true) // sent before the client has seen the notice
	<-h.started
	p.must(p.fr.WritePing(true, ping.Data))
	second, ok := p.next().(*http2.GoAwayFrame)
	if !ok || second.LastStreamID != 7 || second.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with last stream 7", second)
	}
	close(h.release)
	responses := 0
	for f := p.next(); f != nil; f = p.next() { // until the connection ends
		if f, ok := f.(*http2.MetaHeadersFrame); ok && f.PseudoValue("status") == "200" {
			responses++
		}
	}
	if responses != 4 {
		t.Errorf("%d responses, want 4", responses)
	}
}

// TestMaxRequestsLosesNoRequest verifies that the client of net/http loses no request, neither
// sequentially nor concurrently.
func TestMaxRequestsLosesNoRequest(t *testing.T) {
	r := newRig(t, connIDService(), withMaxRequests(3))
	c := newHTTP2Client(t)
	requests := make(map[string]int)
	for range 12 {
		status, conn := get(t, c, "http://"+r.address)
		if status != 200 {
			t.Errorf("status %d, want 200", status)
		}
		requests[conn]++
	}
	// One more request may cross the GOAWAY.
	for conn, n := range requests {
		if n > 4 {
			t.Errorf("connection %s had %d requests, want at most 4", conn, n)
		}
	}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 50 {
				resp, err := c.Get("http://" + r.address)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("status %d, want 200", resp.StatusCode)
				}
			}
		})
	}
	clients.Wait()
}

// TestFinalGoAwayAfterDrainGrace verifies that a client that acknowledges no PING and continues to
// send requests gets the final GOAWAY.
func TestFinalGoAwayAfterDrainGrace(t *testing.T) {
	r := newRig(t, connIDService(), func(o *stream.ServerOptions) {
		withMaxRequests(1)(o)
		o.HTTP2.DrainGrace = 10 * time.Millisecond
	})
	p := r.dial()
	for id := uint32(1); id < 100_000; id += 2 {
		p.request(id, true)
		for responded := false; !responded; {
			switch f := p.next().(type) {
			case *http2.GoAwayFrame:
				if f.LastStreamID < 1<<31-1 {
					return
				}
			case *http2.DataFrame:
				responded = true
			case nil:
				t.Fatal("the connection ended without the final GOAWAY")
			}
		}
	}
	t.Error("50,000 requests on a connection with a maximum of one request had a response, want the final GOAWAY before")
}

// TestTunnelContinuesAfterMaxRequests verifies that a tunnel continues on a connection that has
// reached its maximum number of requests.
func TestTunnelContinuesAfterMaxRequests(t *testing.T) {
	r := newProxyRig(t, startEchoHost(t), func(o *stream.ServerOptions) {
		withMaxRequests(1)(o)
		o.HTTP2.DrainGrace = 10 * time.Millisecond
	}, nil)
	p := r.dial()
	p.request(1, false, ":method", "CONNECT", ":protocol", "websocket")
	finalGoAway := false
	for open := false; !open || !finalGoAway; {
		switch f := p.next().(type) {
		case *http2.MetaHeadersFrame:
			open = f.PseudoValue("status") == "200"
		case *http2.GoAwayFrame:
			finalGoAway = f.LastStreamID == 1
		case nil:
			t.Fatal("the connection ended")
		}
	}
	for range 20 {
		p.must(p.fr.WriteData(1, false, []byte("text")))
		if f, ok := p.next().(*http2.DataFrame); !ok || string(f.Data()) != "text" {
			t.Fatalf("got %v, want the echoed bytes", f)
		}
	}
	p.must(p.fr.WriteData(1, true, nil))
	for f := p.next(); f != nil; f = p.next() { // until the connection ends
		if f, ok := f.(*http2.RSTStreamFrame); ok {
			t.Errorf("the tunnel was reset: %v", f.ErrCode)
		}
	}
}

func TestMaxRequestsCountsUpgradeRequest(t *testing.T) {
	r := newRig(t, connIDService(), nil)
	p := r.dialUpgraded(newUpgradeRequest("GET", "", encodeSettings()), withMaxRequests(1), connIDService(), true)
	p.request(3, true)
	for f := p.next(); ; f = p.next() {
		if f == nil {
			t.Fatal("the connection ended without a GOAWAY")
		}
		if g, ok := f.(*http2.GoAwayFrame); ok && g.LastStreamID == 1<<31-1 {
			return
		}
	}
}

// closeReasons receives the close reasons of connections.
type closeReasons chan network.CloseReason

func (closeReasons) Accepted()                           {}
func (closeReasons) Refused()                            {}
func (closeReasons) AcceptError()                        {}
func (c closeReasons) Closed(reason network.CloseReason) { c <- reason }

func TestMaxRequestsCloseReason(t *testing.T) {
	r := newRig(t, connIDService(), nil)
	o := stream.ServerOptions{Service: connIDService(), HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options()}
	withMaxRequests(2)(&o)
	reasons := make(closeReasons, 1)
	ctx := t.Context()
	ln, err := network.Listen(ctx, network.ListenOptions{Name: "maxrequests", Network: "tcp", Address: "127.0.0.1:0", Counter: reasons}, newServer(r.engine, o))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = ln.Serve(ctx) }) // returns after Drain
	defer serving.Wait()
	defer ln.Drain(ctx)
	r.address = ln.Addr().String()
	p := r.dial()
	p.request(1, true)
	p.awaitFields(1)
	p.request(3, true)
	p.awaitFields(3)
	select {
	case reason := <-reasons:
		if reason != network.ClosedMaxRequests {
			t.Errorf("close reason %v, want %v", reason, network.ClosedMaxRequests)
		}
	case <-time.After(eventTimeout):
		t.Error("timeout waiting for the end of the connection")
	}
}
