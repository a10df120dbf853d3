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

// fewIDsCodec is a toy codec with so few ids that a connection is exhausted, with minFreeIDs left,
// after perConn exchanges.
type fewIDsCodec struct{ toyCodec }

const perConn = 9

var fewTraits = codec.Traits{Name: "few", Version: "few/1", MaxID: perConn - 1 + minFreeIDs, FrameHeaderLen: toyHead}

func (fewIDsCodec) Traits() *codec.Traits { return &fewTraits }

// replacingService is a service that sends each exchange on the newest connection, and opens
// another one when that connection is no longer usable, as a pool does.
type replacingService struct {
	mu      sync.Mutex
	rig     *rig            // guarded by mu
	address string          // guarded by mu
	all     []*UpstreamConn // guarded by mu
}

func (p *replacingService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, p)
}

func (p *replacingService) Serve(ctx context.Context, x *protocol.Exchange) error {
	u, err := p.newest()
	if err != nil {
		return protocol.NewFault(protocol.ConnectFailure, err)
	}
	return x.Serve(ctx, u)
}

func (p *replacingService) newest() (*UpstreamConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.all); n > 0 && p.all[n-1].Usable(0) {
		return p.all[n-1], nil
	}
	u, err := dialFewIDs(p.rig, p.address)
	if err == nil {
		p.all = append(p.all, u)
	}
	return u, err
}

// dialFewIDs returns an upstream connection of fewIDsCodec.
func dialFewIDs(r *rig, address string) (*UpstreamConn, error) {
	conn, err := network.Dialer{}.Dial(context.Background(), "tcp", address, time.Now().Add(5*time.Second))
	if err != nil {
		return nil, err
	}
	u := newUpstreamConn(r.engine, fewIDsCodec{}, conn, stream.UpstreamConnOptions{RPC: r.options, OnRelease: func(bool) {}})
	r.t.Cleanup(func() { _ = u.Close() })
	return u, nil
}

// startHoldingHost starts a host that reads n requests on each connection and responds to each with
// its own text, once all conns connections have n requests. It sends the ids of each connection to
// ids.
func startHoldingHost(t *testing.T, n, conns int) (address string, ids <-chan []uint64) {
	t.Helper()
	sentIDs := make(chan []uint64, conns)
	var missing atomic.Int64
	missing.Store(int64(conns))
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
		if missing.Add(-1) == 0 {
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
	given := map[uint64]bool{}
	for _, id := range ids {
		if given[id] || id > fewTraits.MaxID {
			t.Errorf("id %d was used twice or exceeds %d", id, fewTraits.MaxID)
		}
		given[id] = true
	}
}

// holdResponses sends n requests in one write and verifies that each gets its own response.
func holdResponses(t *testing.T, p *peer, n int) {
	t.Helper()
	var all []byte
	for i := range uint64(n) {
		all = append(all, requestFrame(100+i, "text "+strconv.FormatUint(i, 10))...)
	}
	p.write(all)
	responded := map[uint64]bool{}
	for range n {
		head, frame := p.read()
		if frame == nil {
			t.Fatalf("%d of %d responses", len(responded), n)
		}
		if want := "text " + strconv.FormatUint(head.ID-100, 10); responded[head.ID] || string(frame[toyBody:]) != want {
			t.Errorf("id %d: response %q, want %q, exactly once", head.ID, frame[toyBody:], want)
		}
		responded[head.ID] = true
	}
}

// TestLesson18ConnectionIsReplacedBeforeIDsRunOut covers lesson 18: ids that wrap around
// collide with ids in use. It verifies that a connection is replaced before its ids run out, and
// that no exchange fails.
func TestLesson18ConnectionIsReplacedBeforeIDsRunOut(t *testing.T) {
	const conns = 3
	upstream := &replacingService{}
	r := newRigOf(t, fewIDsCodec{}, upstream, nil)
	address, ids := startHoldingHost(t, perConn, conns)
	upstream.mu.Lock()
	upstream.rig, upstream.address = r, address
	upstream.mu.Unlock()
	holdResponses(t, r.dial(), conns*perConn)
	for range conns {
		got := <-ids
		if len(got) != perConn {
			t.Errorf("a connection got %d requests, want %d", len(got), perConn)
		}
		checkIDs(t, got)
	}
	upstream.mu.Lock()
	defer upstream.mu.Unlock()
	if len(upstream.all) != conns {
		t.Errorf("%d connections, want %d", len(upstream.all), conns)
	}
	for i, u := range upstream.all {
		if u.Usable(0) {
			t.Errorf("connection %d is still usable after %d exchanges", i, perConn)
		}
	}
}

// TestLesson18ExchangesOfReplacedConnectionGetIDs covers lesson 18 for exchanges that chose a
// connection before it was exhausted. It verifies that all of them get distinct ids.
func TestLesson18ExchangesOfReplacedConnectionGetIDs(t *testing.T) {
	const n = 20 * perConn
	upstream := &forwardTo{}
	r := newRigOf(t, fewIDsCodec{}, upstream.service(), nil)
	address, ids := startHoldingHost(t, n, 1)
	chosen, err := dialFewIDs(r, address)
	if err != nil {
		t.Fatal(err)
	}
	upstream.client.Store(chosen)
	if !chosen.Usable(0) {
		t.Error("Usable = false of a new connection")
	}
	holdResponses(t, r.dial(), n)
	checkIDs(t, <-ids)
	if chosen.Usable(0) {
		t.Errorf("the connection is still usable after %d exchanges", n)
	}
}
