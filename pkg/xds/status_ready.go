package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// Ready reports whether the first clusters and listeners that the control plane and
// static_resources have are in force, or cannot be: before, the process does not serve what
// it is there for.
// Once true it stays true. It does not wait.
func (s *Source) Ready() bool {
	switch {
	case s.ready.Load():
		return true
	case !s.work.TryLock(): // a configuration is put in force just now
		return false
	}
	defer s.work.Unlock()
	return s.isReady()
}

// isReady is Ready while s.work is held.
func (s *Source) isReady() bool {
	if s.world.warmup != nil {
		return false
	}
	if s.boot.dynamic.listeners && !s.Kept().InUse && !s.answered(resource.ListenerType) {
		return false
	}
	for name, l := range s.world.listeners {
		if l.last != nil && l.live == nil && l.held != l.last && !s.isRefused(name) {
			return false
		}
	}
	s.ready.Store(true)
	return true
}

// answered reports whether the control plane has sent resources of a type.
func (s *Source) answered(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replied[topicOf{s.feeds[0], url}] != nil
}

// isRefused reports whether the last version of a listener was.
func (s *Source) isRefused(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tracked[resource.ListenerType][name]
	return r != nil && r.Refused != ""
}

// announce logs once that the first configuration of the control plane is applied. s.work
// is held.
func (s *Source) announce() {
	if s.announced || !s.isReady() {
		return
	}
	s.announced = true
	listeners, clusters := 0, 0
	for _, l := range s.world.listeners {
		if l.live != nil {
			listeners++
		}
	}
	for _, c := range s.world.clusters {
		if c.live != nil {
			clusters++
		}
	}
	s.o.Log.Info("first configuration of the control plane applied", "listeners", listeners, "clusters", clusters)
}
