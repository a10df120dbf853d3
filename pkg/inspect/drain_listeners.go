package inspect

import (
	"net/http"

	"github.com/weft-proxy/weft/internal/admin"
)

// DrainListeners holds the parameters of /drain_listeners. As in Envoy, a parameter is set if the
// query contains it, with any value.
type DrainListeners struct {
	InboundOnly bool // only listeners that serve the local application
	Graceful    bool // drain connections for the drain time, and then stop the listeners; false: stop them now
	SkipExit    bool // drain connections and never stop the listeners; overrides Graceful
}

// drainListeners serves /drain_listeners.
func (s *Sources) drainListeners(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.DrainListeners(DrainListeners{InboundOnly: query.Has("inboundonly"), Graceful: query.Has("graceful"), SkipExit: query.Has("skip_exit")})
	admin.WriteText(w, http.StatusOK, okText)
}
