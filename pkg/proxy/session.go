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
	ended    []func() // what they are told the end by
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
	if len(s.ended) < len(s.watchers) {
		s.Reason = protocol.ReasonOf(err)
		s.tell()
	}
	for _, f := range s.ended {
		f()
	}
}

func (s *session) tell() {
	s.Caller = stream.TLSMeta(s.caller)
	if s.cell != nil {
		s.Cluster = s.cell.Config()
	}
	for _, w := range s.watchers {
		s.ended = append(s.ended, w(&s.Session))
	}
}
