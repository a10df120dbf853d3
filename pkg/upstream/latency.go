package upstream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// observe takes note of how long the host let x wait that was sent to it, if the
// cluster's policy goes by that. An attempt that was given up for lack of an answer has
// waited until now; one that failed sooner says nothing of how fast the host is. One whose
// caller has left, or has the answer of another host, would have waited longer yet: that
// counts if it is more than is known.
func (h *Host) observe(x *protocol.Exchange, err error) {
	c := h.cluster
	if c.settings().Policy != config.PeakEWMA || x.Record.UpstreamStart.IsZero() {
		return
	}
	until, reason := x.Record.UpstreamFirstByte, protocol.ReasonOf(err)
	switch {
	case err == nil && until.IsZero():
		return
	case err != nil && reason != protocol.UpstreamTimeout && reason != protocol.StreamIdle && reason != protocol.ReasonDownstreamDisconnect:
		return
	case err != nil:
		until = time.Now()
	}
	now, waited := c.env.now(), until.Sub(x.Record.UpstreamStart)
	if reason == protocol.ReasonDownstreamDisconnect && waited < h.load.Latency(now) {
		return
	}
	c.observed.Store(int64(now))
	h.load.Observe(now, waited)
}

// lastObserved is the clock that balancers compare observations by: the time of the
// last one, which is near enough while requests are answered, and costs a pick much
// less than the real time.
func (c *Cluster) lastObserved() time.Duration { return time.Duration(c.observed.Load()) }
