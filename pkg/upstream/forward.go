package upstream

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// connectRelayFunc opens a connection to h before the deadline. The returned relay copies bytes
// between the downstream connection and this connection, and returns when copying has ended.
type connectRelayFunc = func(ctx context.Context, h *Host, deadline time.Time) (relay func() error, err error)

// ForwardConn forwards a downstream connection with these addresses. It counts a connection, picks
// a host, calls connect, and then calls the relay function that connect returned. If connect
// returns a Fault of ConnectFailure or ConnectTimeout, ForwardConn tries the next host, up to the
// given number of attempts. It returns any other error unchanged.
//
// A downstream connection is pending until it has a connection to a host: it waits while as many
// forwarded connections to the host are being opened as Pool.MaxConnecting allows. If ctx ends
// during this wait, ForwardConn opens no connection.
//
// The errors of ForwardConn itself are Faults:
//
//   - NoCluster, Dropped, ReasonOnDemandTimeout and NoHealthyHost;
//   - ConnectTimeout or ReasonDownstreamDisconnect, if a wait has ended without success;
//   - Overflow, if max_connections, max_pending_requests or max_requests is reached: ForwardConn
//     does not wait for another connection to end;
//   - for a cluster of type ORIGINAL_DST, NoDestination, ReasonLoop, and Overflow if too many
//     destinations are in use.
func (c *Cluster) ForwardConn(ctx context.Context, addrs ConnAddrs, attempts int, connect connectRelayFunc) error {
	return c.ForwardConnTo(ctx, ConnChoice{}, addrs, attempts, connect)
}

// ConnChoice limits and directs the choice of a host for a forwarded connection. The zero value means
// all hosts.
type ConnChoice struct {
	Labels *subset.Labels // of the hosts, if the cluster has subsets; nil: none
	Hash   uint64         // for consistent hashing; 0: none
}

// ForwardConnTo does what ForwardConn does, with hosts that choice selects.
func (c *Cluster) ForwardConnTo(ctx context.Context, choice ConnChoice, addrs ConnAddrs, attempts int, connect connectRelayFunc) error {
	b := c.Breaker(config.DefaultPriority)
	s, err := c.admit(config.DefaultPriority)
	for err == nil && c.mustAwaitHosts(s) {
		if err = c.awaitHosts(ctx, b, time.Time{}, nil); err == nil {
			s, err = c.admit(config.DefaultPriority)
		}
	}
	if err != nil {
		return err
	}
	if err := b.AddActive(); err != nil {
		return err
	}
	defer b.RemoveActive()
	if err := c.dropOverload(s.config); err != nil {
		return err
	}
	if err := b.AddConnection(); err != nil {
		return err
	}
	defer b.ReleaseSlot()
	h, relay, err := s.connectRelay(ctx, b, choice, addrs, attempts, connect)
	if err != nil {
		return err
	}
	return h.relay(relay)
}

// connectRelay calls connect for one host after another, as ForwardConn describes. The downstream
// connection is pending meanwhile. The caller has called AddActive for it, so connectRelay does not
// check max_requests again.
func (s *state) connectRelay(ctx context.Context, b *breaker.Breaker, choice ConnChoice, addrs ConnAddrs, attempts int, connect connectRelayFunc) (h *Host, relay func() error, err error) {
	if err := b.EnterPendingActive(); err != nil {
		return nil, nil, err
	}
	defer b.LeavePendingActive()
	var tried []protocol.Attempt
	for range max(attempts, 1) {
		h, pickErr := s.pickForConn(choice, addrs, tried)
		if pickErr != nil {
			if len(tried) == 0 {
				err = pickErr
			}
			break
		}
		tried = append(tried, protocol.Attempt{Host: h})
		if relay, err = h.connectRelay(ctx, s, connect); err == nil {
			return h, relay, nil
		}
		if ctx.Err() != nil {
			break // the error says nothing about the host
		}
		h.recordAttempt(nil, err)
		if !pool.CanTryAnotherHost(err) {
			break
		}
		h.recordConnectFailure(err)
	}
	return nil, nil, err
}

// connectRelay waits until fewer forwarded connections to the host are being opened than
// Pool.MaxConnecting allows, and then calls connect.
func (h *Host) connectRelay(ctx context.Context, s *state, connect connectRelayFunc) (relay func() error, err error) {
	h.dialing.Add(1)
	h.attempts.Add(1)
	defer func() {
		h.dialing.Add(-1)
		if relay == nil {
			h.failures.Add(1)
		}
	}()
	deadline := pool.ConnectDeadline(s.config)
	if err := h.relayDials.Acquire(ctx, s.config.Pool.ConnectLimit(), deadline, h.address); err != nil {
		return nil, err
	}
	defer h.relayDials.Release()
	return connect(ctx, h, deadline)
}

// relay calls the relay function that connect returned, and counts one exchange in flight and one
// open connection until the function returns.
func (h *Host) relay(relay func() error) error {
	h.load.Begin()
	defer h.load.End()
	h.load.Connect()
	defer h.load.Disconnect()
	h.recordConnect()
	defer h.countConnection(ConnectionClosed)
	if r := h.outlierStats.Load(); r != nil {
		r.RecordRelay()
	}
	return relay()
}
