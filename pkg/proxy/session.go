package proxy

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// session is a forwarded connection as the observers of a filter chain see it. The goroutine that
// relays the connection owns it.
type session struct {
	filter.Session
	cluster       *upstream.Cluster // nil: unknown
	downstream    *network.Conn
	observers     []filter.SessionObserver
	notifiedCount int      // number of observers that were notified of the start
	onEnd         []func() // functions that notify these observers of the end
}

// begin notifies the observers of a session that has a connected host.
func (s *session) begin(h *upstream.Host, conn *network.Conn) {
	if len(s.observers) == 0 {
		return
	}
	s.Host, s.UpstreamTLS = h.Config(), stream.NewTLSMeta(conn)
	s.notifyBegin()
}

// end notifies the observers of the end. If err prevented begin, it notifies them of the start
// first.
func (s *session) end(err error) {
	defer s.notifyEnd()
	if s.notifiedCount < len(s.observers) {
		s.Reason = protocol.ReasonOf(err)
		s.notifyBegin()
	}
}

// notifyEnd notifies the observers of the end. If one panics, the others are still notified.
func (s *session) notifyEnd() {
	if len(s.onEnd) == 0 {
		return
	}
	defer s.notifyEnd()
	f := s.onEnd[0]
	s.onEnd = s.onEnd[1:]
	f()
}

func (s *session) notifyBegin() {
	s.DownstreamTLS = stream.NewTLSMeta(s.downstream)
	if s.cluster != nil {
		s.Cluster = s.cluster.Config()
	}
	for s.notifiedCount < len(s.observers) {
		observer := s.observers[s.notifiedCount]
		s.notifiedCount++ // before the call, because observer may panic
		s.onEnd = append(s.onEnd, observer(&s.Session))
	}
}
