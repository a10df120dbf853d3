package proxy

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// overloadPolicy are what every exchange of a process that is short of something obeys: which
// share of them is refused, and which share of the answers ends its connection. The
// zero value asks for nothing. One goroutine gives them.
type overloadPolicy struct {
	// packedState is both shares, of wholeShare: refused above, ending below.
	packedState atomic.Uint64

	refused, ended atomic.Uint64 // exchanges
}

const (
	wholeShare = 1 << 31
	shareBits  = 32
)

// give replaces the shares, each from 0 to 1.
func (o *overloadPolicy) give(refuse, end float64) {
	o.packedState.Store(uint64(refuse*wholeShare)<<shareBits | uint64(end*wholeShare))
}

// shed is a service whose exchanges obey orders. It stands inside Respond and outside
// everything that costs something.
func shed(next protocol.Service, o *overloadPolicy) protocol.AsyncService {
	return &shedService{protocol.Async(next), o}
}

type shedService struct {
	next   protocol.AsyncService
	orders *overloadPolicy
}

// retryAfter is when a caller that was refused may come back, in seconds (RFC 9110
// 10.2.3): actions last that long at least.
const retryAfter = "1"

// Serve is protocol.Service's.
func (s *shedService) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, s, x)
}

// Start is protocol.AsyncService's.
func (s *shedService) Start(ctx context.Context, x *protocol.Exchange) error {
	if word := s.orders.packedState.Load(); word != 0 && s.orders.obey(word, x) {
		return nil
	}
	return s.next.Start(ctx, x)
}

// obey does with x what word says, and reports whether x was refused.
func (o *overloadPolicy) obey(word uint64, x *protocol.Exchange) (refused bool) {
	if chosen(word&(1<<shareBits-1)) && endsConnection(x) {
		o.ended.Add(1)
	}
	if !chosen(word >> shareBits) {
		return false
	}
	o.refused.Add(1)
	// As Exchange.Fail, without what that allocates.
	x.Record.Reason, x.Record.Detail = protocol.Overloaded, string(config.ActStopRequests)
	x.LocalReply(protocol.Overloaded.Traits().HTTP, "text/plain; charset=utf-8", "overloaded\n")
	x.Response.Header.Add("Retry-After", retryAfter)
	return true
}

// chosen reports whether an exchange belongs to a share of wholeShare.
func chosen(share uint64) bool {
	return share >= wholeShare || share > 0 && rand.Uint64N(wholeShare) < share
}

// shedder is a connection that can be asked to end behind its exchange, as
// network.Conn can.
type shedder interface{ Shed() }

// endsConnection asks for the end of x's connection, and reports whether there is one
// that it can be asked of: the frames of RPC have no such word that callers know.
func endsConnection(x *protocol.Exchange) bool {
	if p := config.Protocol(x.Meta.Protocol); p != config.HTTP1 && p != config.HTTP2 || x.Meta.Conn == nil {
		return false
	}
	conn, ok := x.Meta.Conn.DownstreamConn.(shedder)
	if ok {
		conn.Shed()
	}
	return ok
}

// counter returns the counter of an action that orders are for; nil for others.
func (o *overloadPolicy) counter(name config.ActionName) *atomic.Uint64 {
	switch name {
	case config.ActStopRequests:
		return &o.refused
	case config.ActDisableKeepAlive:
		return &o.ended
	default:
		return nil
	}
}
