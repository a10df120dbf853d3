package proxy

import "github.com/weft-proxy/weft/pkg/config"

// Check returns the error that Apply of next would return before it binds an address: it
// prepares clusters, reads certificates, compiles routes, builds filters and opens access
// logs as Apply does, and undoes all of it. It resolves no names and connects to nothing.
// Options.Logs decides whether log files are opened or only checked.
func (s *Server) Check(next *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.clusters.Check(next.Clusters); err != nil {
		return err
	}
	clients, err := s.clients.prepare(next.Clusters)
	if err != nil {
		return err
	}
	defer s.clients.drop(clients)
	if _, err := s.overseer.prepare(next.Overload); err != nil {
		return err
	}
	p := &plan{
		entries: make(map[string]*compiledListener),
		config:  make(map[string]*config.Listener),
	}
	defer p.undo()
	if err := s.compose(p, next); err != nil {
		return err
	}
	_, err = s.datagramsOf(next)
	return err
}
