package upstream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// observeLatency records how long the host took to respond to x, if the policy of the cluster uses
// latencies. For an attempt that timed out it records the time until now. Other failed attempts say
// nothing about the speed of the host. An attempt ends early if its client disconnects or another
// host responds first. The time of such an attempt counts only if it exceeds the current latency.
func (h *Host) observeLatency(x *protocol.Exchange, err error) {
	c := h.cluster
	if c.lastConfig().LBPolicy != config.PeakEWMA || x.Record.UpstreamStart.IsZero() {
		return
	}
	end, reason := x.Record.UpstreamFirstByte, protocol.ReasonOf(err)
	switch {
	case err == nil && end.IsZero():
		return
	case err != nil && reason != protocol.UpstreamTimeout && reason != protocol.StreamIdle && reason != protocol.ReasonDownstreamDisconnect:
		return
	case err != nil:
		end = time.Now()
	}
	now, elapsed := c.env.now(), end.Sub(x.Record.UpstreamStart)
	if reason == protocol.ReasonDownstreamDisconnect && elapsed < h.load.Latency(now) {
		return
	}
	c.latencyObservedAt.Store(int64(now))
	h.load.Observe(now, elapsed)
}

// lastLatencyAt returns the time at which the cluster last observed a latency. Balancers use it as
// their clock: it is precise enough while requests are served, and much cheaper than reading the
// clock for each pick.
func (c *Cluster) lastLatencyAt() time.Duration { return time.Duration(c.latencyObservedAt.Load()) }
