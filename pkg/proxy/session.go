package proxy

import (
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// session is what the observers of a filter chain see of a forwarded connection. The goroutine that
// relays it owns it.
type session struct {
	filter.Session
	cell     *upstream.Cluster // nil: there is none
	caller   *network.Conn
	watchers []filter.SessionObserver
	notified int      // how many watchers were notified of the beginning
	ended    []func() // notify those watchers of the end
}

// begin notifies the observers of a session that has a connected host.
func (s *session) begin(h *upstream.Host, conn *network.Conn) {
	if len(s.watchers) == 0 {
		return
	}
	s.Host, s.Called = h.Config(), stream.NewTLSMeta(conn)
	s.tell()
}

// end notifies the watchers of the end, and of the beginning, too, if err prevented it.
func (s *session) end(err error) {
	defer s.finish()
	if s.notified < len(s.watchers) {
		s.Reason = protocol.ReasonOf(err)
		s.tell()
	}
}

// finish notifies the watchers of the end. If one panics, the others are still notified.
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
	s.Caller = stream.NewTLSMeta(s.caller)
	if s.cell != nil {
		s.Cluster = s.cell.Config()
	}
	for s.notified < len(s.watchers) {
		w := s.watchers[s.notified]
		s.notified++ // w may panic
		s.ended = append(s.ended, w(&s.Session))
	}
}
