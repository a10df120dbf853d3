package proxy

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// overloadPolicy is applied to every exchange of an overloaded process: the fraction to reject, and
// the fraction whose connection ends after the response. The zero value does nothing. One goroutine
// updates it.
type overloadPolicy struct {
	// packedState holds both fractions of wholeShare: reject in the high bits, end in the low bits.
	packedState atomic.Uint64

	refused, ended atomic.Uint64 // exchanges
}

const (
	wholeShare = 1 << 31
	shareBits  = 32
)

// give replaces the fractions, each from 0 to 1.
func (o *overloadPolicy) give(refuse, end float64) {
	o.packedState.Store(uint64(refuse*wholeShare)<<shareBits | uint64(end*wholeShare))
}

// shed returns a service that applies the policy. It is inside Respond and outside everything
// expensive.
func shed(next protocol.Service, o *overloadPolicy) protocol.AsyncService {
	return &shedService{protocol.Async(next), o}
}

type shedService struct {
	next   protocol.AsyncService
	orders *overloadPolicy
}

// retryAfter is the Retry-After of rejected requests in seconds (RFC 9110 10.2.3). Actions last at
// least that long.
const retryAfter = "1"

// Serve implements protocol.Service.
func (s *shedService) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, s, x)
}

// Start implements protocol.AsyncService.
func (s *shedService) Start(ctx context.Context, x *protocol.Exchange) error {
	if word := s.orders.packedState.Load(); word != 0 && s.orders.obey(word, x) {
		return nil
	}
	return s.next.Start(ctx, x)
}

// obey applies word to x and reports whether x was rejected.
func (o *overloadPolicy) obey(word uint64, x *protocol.Exchange) (refused bool) {
	if chosen(word&(1<<shareBits-1)) && endsConnection(x) {
		o.ended.Add(1)
	}
	if !chosen(word >> shareBits) {
		return false
	}
	o.refused.Add(1)
	// This does what Exchange.LocalReplyError does, without its allocations.
	x.Record.Reason, x.Record.Detail = protocol.Overloaded, string(config.ActStopRequests)
	x.LocalReply(protocol.Overloaded.Traits().HTTP, "text/plain; charset=utf-8", "overloaded\n")
	x.Response.Header.Add("Retry-After", retryAfter)
	return true
}

// chosen samples whether an exchange belongs to a fraction of wholeShare.
func chosen(share uint64) bool {
	return share >= wholeShare || share > 0 && rand.Uint64N(wholeShare) < share
}

// shedder is a connection that can end after its exchange, like network.Conn.
type shedder interface{ Shed() }

// endsConnection asks x's connection to end and reports whether that is possible. RPC frames have
// no notice that clients understand.
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

// counter returns the counter of an action that the policy carries out, or nil for other actions.
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
