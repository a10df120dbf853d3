package xprotocol

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// fewIDsCodec is a toyCodec whose connections are exhausted after exchangesPerConn exchanges: fewer
// than minFreeIDs ids remain.
type fewIDsCodec struct{ toyCodec }

const exchangesPerConn = 9

var fewIDsTraits = codec.Traits{Name: "few", Version: "few/1", MaxID: exchangesPerConn - 1 + minFreeIDs, FrameHeaderLen: toyHead}

func (fewIDsCodec) Traits() *codec.Traits { return &fewIDsTraits }

// replacingService is a service that sends each exchange on the newest connection, and opens
// another one when that connection is no longer usable, as a pool does.
type replacingService struct {
	mu      sync.Mutex
	proxy   *testProxy      // guarded by mu
	address string          // guarded by mu
	conns   []*UpstreamConn // guarded by mu
}

func (s *replacingService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

func (s *replacingService) Serve(ctx context.Context, x *protocol.Exchange) error {
	u, err := s.newest()
	if err != nil {
		return protocol.NewFault(protocol.ConnectFailure, err)
	}
	return x.Serve(ctx, u)
}

func (s *replacingService) newest() (*UpstreamConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.conns); n > 0 && s.conns[n-1].Usable(0) {
		return s.conns[n-1], nil
	}
	u, err := dialFewIDs(s.proxy, s.address)
	if err == nil {
		s.conns = append(s.conns, u)
	}
	return u, err
}

// dialFewIDs returns an upstream connection of fewIDsCodec.
func dialFewIDs(proxy *testProxy, address string) (*UpstreamConn, error) {
	conn, err := network.Dialer{}.Dial(context.Background(), "tcp", address, time.Now().Add(5*time.Second))
	if err != nil {
		return nil, err
	}
	u := newUpstreamConn(proxy.engine, fewIDsCodec{}, conn, stream.UpstreamConnOptions{RPC: proxy.options, OnRelease: func(bool) {}})
	proxy.t.Cleanup(func() { _ = u.Close() })
	return u, nil
}

// startHoldingHost starts a host that reads n requests on each connection. Once all conns
// connections have n requests, it responds to each request with the text of the request. It sends
// the ids of each connection to ids.
func startHoldingHost(t *testing.T, n, conns int) (address string, ids <-chan []uint64) {
	t.Helper()
	sentIDs := make(chan []uint64, conns)
	var remaining atomic.Int64
	remaining.Store(int64(conns))
	complete := make(chan struct{})
	return startHost(t, func(p *peer) {
		var ids []uint64
		var responses []byte
		for range n {
			head, frame := p.read()
			if frame == nil {
				break // the test detects the missing ids
			}
			_, text, _ := strings.Cut(string(frame[toyBody:]), "\x00")
			ids = append(ids, head.ID)
			responses = append(responseFrame(head, text), responses...) // in reverse order
		}
		sentIDs <- ids
		if remaining.Add(-1) == 0 {
			close(complete)
		}
		select {
		case <-complete:
		case <-t.Context().Done(): // a connection is missing: the test has failed
			return
		}
		p.write(responses)
		p.read()
	}), sentIDs
}

// checkIDs verifies that all ids are distinct and at most MaxID.
func checkIDs(t *testing.T, ids []uint64) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, id := range ids {
		if seen[id] || id > fewIDsTraits.MaxID {
			t.Errorf("id %d was used twice or exceeds %d", id, fewIDsTraits.MaxID)
		}
		seen[id] = true
	}
}

// checkExchanges sends n requests in one write and verifies that each gets its own response.
func checkExchanges(t *testing.T, p *peer, n int) {
	t.Helper()
	var frames []byte
	for i := range uint64(n) {
		frames = append(frames, requestFrame(100+i, "text "+strconv.FormatUint(i, 10))...)
	}
	p.write(frames)
	responded := map[uint64]bool{}
	for range n {
		head, frame := p.read()
		if frame == nil {
			t.Fatalf("%d responses, want %d", len(responded), n)
		}
		if want := "text " + strconv.FormatUint(head.ID-100, 10); responded[head.ID] || string(frame[toyBody:]) != want {
			t.Errorf("id %d: response %q, want %q, exactly once", head.ID, frame[toyBody:], want)
		}
		responded[head.ID] = true
	}
}

// TestConnectionIsReplacedBeforeIDsRunOut verifies that a connection is replaced before its ids run
// out, and that no exchange fails. Ids that wrap around would collide with ids in use.
func TestConnectionIsReplacedBeforeIDsRunOut(t *testing.T) {
	const conns = 3
	upstream := &replacingService{}
	proxy := newTestProxyWithCodec(t, fewIDsCodec{}, upstream, nil)
	address, ids := startHoldingHost(t, exchangesPerConn, conns)
	upstream.mu.Lock()
	upstream.proxy, upstream.address = proxy, address
	upstream.mu.Unlock()
	checkExchanges(t, proxy.dial(), conns*exchangesPerConn)
	for range conns {
		got := <-ids
		if len(got) != exchangesPerConn {
			t.Errorf("a connection got %d requests, want %d", len(got), exchangesPerConn)
		}
		checkIDs(t, got)
	}
	upstream.mu.Lock()
	defer upstream.mu.Unlock()
	if len(upstream.conns) != conns {
		t.Errorf("%d connections, want %d", len(upstream.conns), conns)
	}
	for i, u := range upstream.conns {
		if u.Usable(0) {
			t.Errorf("connection %d is still usable after %d exchanges", i, exchangesPerConn)
		}
	}
}

// TestExchangesOfExhaustedConnectionGetIDs verifies that exchanges get distinct ids if they chose a
// connection before it was exhausted.
func TestExchangesOfExhaustedConnectionGetIDs(t *testing.T) {
	const n = 20 * exchangesPerConn
	upstream := &forwardService{}
	proxy := newTestProxyWithCodec(t, fewIDsCodec{}, upstream.service(), nil)
	address, ids := startHoldingHost(t, n, 1)
	u, err := dialFewIDs(proxy, address)
	if err != nil {
		t.Fatal(err)
	}
	upstream.client.Store(u)
	if !u.Usable(0) {
		t.Error("Usable = false for a new connection, want true")
	}
	checkExchanges(t, proxy.dial(), n)
	checkIDs(t, <-ids)
	if u.Usable(0) {
		t.Errorf("the connection is still usable after %d exchanges", n)
	}
}
