package proxy

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// session is what the watchers of a filter chain see of a connection that is carried.
// Owned by the goroutine that carries it.
type session struct {
	filter.Session
	cell     *upstream.Cluster // nil: there is none
	caller   *network.Conn
	watchers []filter.Watcher
	told     int      // how many watchers the beginning has been reported to
	ended    []func() // what tells them of the end
}

// begin tells of a session whose host is connected to.
func (s *session) begin(h *upstream.Host, conn *network.Conn) {
	if len(s.watchers) == 0 {
		return
	}
	s.Host, s.Called = h.Config(), stream.TLSMeta(conn)
	s.tell()
}

// end tells of the end; of the beginning, too, if err kept the session from that.
func (s *session) end(err error) {
	defer s.finish()
	if s.told < len(s.watchers) {
		s.Reason = protocol.ReasonOf(err)
		s.tell()
	}
}

// finish tells of the end. A panic of a watcher does not keep the others from being told.
func (s *session) finish() {
	if len(s.ended) == 0 {
		return
	}
	defer s.finish()
	f := s.ended[0]
	s.ended = s.ended[1:]
	f()
}

func (s *session) tell() {
	s.Caller = stream.TLSMeta(s.caller)
	if s.cell != nil {
		s.Cluster = s.cell.Config()
	}
	for s.told < len(s.watchers) {
		w := s.watchers[s.told]
		s.told++ // w may panic
		s.ended = append(s.ended, w(&s.Session))
	}
}
