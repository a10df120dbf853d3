package service

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// OverloadPolicy sets the fraction of exchanges to reject and the fraction whose connection closes
// after the response. The zero value does nothing. It is safe for concurrent use.
type OverloadPolicy struct {
	// packedState holds both fractions in units of 1/fractionScale: reject in the high bits, close
	// in the low bits.
	packedState atomic.Uint64

	rejectedCount, closedCount atomic.Uint64 // number of exchanges
}

const (
	fractionScale = 1 << 31
	fractionBits  = 32
)

// SetFractions replaces the fractions, each from 0 to 1.
func (p *OverloadPolicy) SetFractions(reject, closeConn float64) {
	p.packedState.Store(uint64(reject*fractionScale)<<fractionBits | uint64(closeConn*fractionScale))
}

// Shed returns a service that applies the policy. It runs after Respond and before expensive
// services.
func Shed(next protocol.Service, policy *OverloadPolicy) protocol.Service {
	return &shedService{next, policy}
}

type shedService struct {
	next   protocol.Service
	policy *OverloadPolicy
}

// retryAfter is the Retry-After of rejected requests in seconds (RFC 9110 10.2.3). An action lasts
// at least that long.
const retryAfter = "1"

// Start implements protocol.Service.
func (s *shedService) Start(ctx context.Context, x *protocol.Exchange) error {
	if state := s.policy.packedState.Load(); state != 0 && s.policy.apply(state, x) {
		return nil
	}
	return s.next.Start(ctx, x)
}

// apply applies the packed state to x and reports whether it rejected x.
func (p *OverloadPolicy) apply(state uint64, x *protocol.Exchange) (rejected bool) {
	if sample(state&(1<<fractionBits-1)) && shedConnection(x) {
		p.closedCount.Add(1)
	}
	if !sample(state >> fractionBits) {
		return false
	}
	p.rejectedCount.Add(1)
	// This does what Exchange.LocalReplyError does, without its allocations.
	text := "overloaded\n"
	if x.EnvoyReplies != nil {
		text = "envoy overloaded"
	}
	x.Record.Reason, x.Record.Detail = protocol.Overloaded, string(config.ActionStopRequests)
	x.LocalReply(protocol.Overloaded.Spec().HTTP, protocol.TextPlain, text)
	x.Response.Header.Add("Retry-After", retryAfter)
	return true
}

// sample takes one random sample and reports whether the exchange belongs to a fraction, in units
// of 1/fractionScale.
func sample(fraction uint64) bool {
	return fraction >= fractionScale || fraction > 0 && rand.Uint64N(fractionScale) < fraction
}

// shedConnection makes x's connection close after the response and reports whether that is
// possible. It spares RPC connections: many clients do not understand a close notice.
func shedConnection(x *protocol.Exchange) bool {
	if p := config.Protocol(x.Meta.Protocol); p != config.HTTP1 && p != config.HTTP2 || x.Meta.Conn == nil {
		return false
	}
	conn := x.Meta.Conn.DownstreamConn
	if conn == nil {
		return false
	}
	conn.Shed()
	return true
}

// Counter returns the counter of an action that the policy carries out, or nil for other actions.
func (p *OverloadPolicy) Counter(name config.ActionName) *atomic.Uint64 {
	switch name {
	case config.ActionStopRequests:
		return &p.rejectedCount
	case config.ActionDisableKeepAlive:
		return &p.closedCount
	default:
		return nil
	}
}
