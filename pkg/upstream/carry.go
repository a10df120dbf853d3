package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// carryFunc opens a connection to h before the deadline and returns carry, which relays the bytes
// of the downstream connection over it and returns when both are done.
type carryFunc = func(ctx context.Context, h *Host, deadline time.Time) (carry func() error, err error)

// ForwardConn forwards a downstream connection with the addresses at: it picks a host, counts a
// connection, calls connect and then the function that connect returned, which relays the bytes and
// returns at the end. If connect returns a Fault of ConnectFailure or ConnectTimeout, ForwardConn
// tries the next host, up to the given number of attempts; it returns any other error unchanged.
//
// A downstream connection is pending until it has a connection to a host: it waits while as many
// connections to the host are being opened as Pool.MaxConnecting allows. When ctx ends before its
// turn, no connection is opened for it.
//
// Its own errors are Faults: NoCluster, Dropped, ReasonOnDemandTimeout, NoHealthyHost, and Overflow
// if max_connections, max_pending_requests or max_requests is reached: a connection does not wait
// for another to end. For a cluster of type ORIGINAL_DST also NoDestination and ReasonLoop.
func (c *Cluster) ForwardConn(ctx context.Context, at ConnAddrs, attempts int, connect carryFunc) error {
	b := c.Breaker(config.DefaultPriority)
	s, err := b.admit()
	for err == nil && c.mustWait(s) {
		if err = b.awaitHosts(ctx, time.Time{}, nil); err == nil {
			s, err = b.admit()
		}
	}
	if err != nil {
		return err
	}
	if err := b.activate(); err != nil {
		return err
	}
	defer b.active.Add(-1)
	if err := c.drop(s.config); err != nil {
		return err
	}
	if !b.slots.take(s.config.Breakers.MaxConnections) {
		b.refused(ConnectionOverflow)
		return protocol.Faultf(protocol.Overflow, "cluster %s: max_connections (%d) reached", c.name, s.config.Breakers.MaxConnections)
	}
	defer b.freeSlot()
	h, carry, err := b.connectCarrier(ctx, s, at, attempts, connect)
	if err != nil {
		return err
	}
	return h.carry(carry)
}

// connectCarrier calls connect for one host after another until it succeeds. The downstream
// connection is pending meanwhile. It is active already, so max_requests is not checked again.
func (b *Breaker) connectCarrier(ctx context.Context, s *state, at ConnAddrs, attempts int, connect carryFunc) (h *Host, carry func() error, err error) {
	if err := b.addPending(b.limits()); err != nil {
		return nil, nil, err
	}
	defer b.pending.Add(-1)
	var made []protocol.Attempt
	for range max(attempts, 1) {
		h, none := s.pickForConn(at, made)
		if none != nil {
			if len(made) == 0 {
				err = none
			}
			break
		}
		made = append(made, protocol.Attempt{Host: h})
		if carry, err = h.connectCarrier(ctx, s, connect); err == nil {
			return h, carry, nil
		}
		if ctx.Err() != nil {
			break // the error says nothing about the host
		}
		h.judge(nil, err)
		if !goesOn(err) {
			break
		}
		h.connectFailed(err)
	}
	return nil, nil, err
}

// connectCarrier calls connect when fewer connections to the host are being opened than
// Pool.MaxConnecting allows.
func (h *Host) connectCarrier(ctx context.Context, s *state, connect carryFunc) (carry func() error, err error) {
	h.dialing.Add(1)
	h.attempts.Add(1)
	defer func() {
		h.dialing.Add(-1)
		if carry == nil {
			h.failures.Add(1)
		}
	}()
	deadline := s.connectBy()
	if err := h.carriers.acquire(ctx, s.config.Pool.ConnectLimit(), deadline, h); err != nil {
		return nil, err
	}
	defer h.carriers.release()
	return connect(ctx, h, deadline)
}

// carry calls the function that connect returned and counts it as one exchange in flight.
func (h *Host) carry(carry func() error) error {
	h.load.Begin()
	defer h.load.End()
	h.load.Connect()
	defer h.load.Disconnect()
	h.connected()
	defer h.countConnection(ConnectionClosed)
	if r := h.record.Load(); r != nil {
		r.passed(1) // nothing more becomes known about the result
	}
	return carry()
}
