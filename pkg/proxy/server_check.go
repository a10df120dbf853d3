package proxy

import "github.com/weft-proxy/weft/pkg/config"

// Check returns an error if Apply would reject the contents of next. It prepares clusters, reads
// certificates, compiles routes, builds filters and opens access logs as Apply does, and undoes all
// of it. It binds no address, resolves no names and connects to nothing. Options.Logs decides
// whether log files are opened or only checked.
func (s *Server) Check(next *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.clusters.Check(next.Clusters); err != nil {
		return err
	}
	clients, err := s.upstreamTLS.prepare(next.Clusters)
	if err != nil {
		return err
	}
	defer s.upstreamTLS.rollback(clients)
	if _, err := s.overload.Prepare(next.Overload); err != nil {
		return err
	}
	p := &plan{
		listeners: make(map[string]*compiledListener),
		configs:   make(map[string]*config.Listener),
	}
	defer p.rollbackListeners()
	if err := s.buildListeners(p, next); err != nil {
		return err
	}
	_, err = s.udpListeners(next)
	return err
}
