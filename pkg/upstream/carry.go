package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// carryFunc opens a connection to h before the deadline and returns what carries the bytes
// of the caller's connection over it. carry returns when there is nothing left to carry.
type carryFunc = func(ctx context.Context, h *Host, deadline time.Time) (carry func() error, err error)

// ForwardConn is Serve for the bytes of a connection that came in as at says: it picks a
// host, counts a connection, calls connect and then what that returned, which carries
// what there is to carry and returns when it is over. If connect returns a Fault of ConnectFailure or ConnectTimeout
// the next host is tried, up to so many attempts in all; any other error is
// returned as it is.
//
// Until it has a connection to a host, a caller's connection is pending: it waits while
// as many connections to the host are being opened as Pool.MaxConnecting allows. When ctx
// ends before its turn, no connection is opened for it.
//
// Errors of its own are Faults: NoCluster, Dropped, NotSupplied, NoHealthyHost, and Overflow
// when max_connections, max_pending_requests or max_requests is reached: a connection does
// not wait for another to end; and of a cluster of type ORIGINAL_DST NoDestination and Loop.
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

// connectCarrier calls connect for one host after another until it succeeds. The caller's
// connection is pending meanwhile; it is active already, so that max_requests does not
// keep it from waiting.
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
			break // that says nothing of the host
		}
		h.judge(nil, err)
		if !goesOn(err) {
			break
		}
		h.connectFailed(err)
	}
	return nil, nil, err
}

// connectCarrier calls connect once fewer connections to the host are being opened than
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

// carry calls what connect returned, counted as one exchange in flight.
func (h *Host) carry(carry func() error) error {
	h.load.Begin()
	defer h.load.End()
	h.load.Connect()
	defer h.load.Disconnect()
	h.connected()
	defer h.countConnection(ConnectionClosed)
	if r := h.record.Load(); r != nil {
		r.passed(1) // all that will be known
	}
	return carry()
}
