package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// Ready reports whether the process serves its initial configuration: each listener of
// static_resources and of the first response is active, rejected or held back, and the warm-up has
// ended. Once Ready has returned true, it always does. Before that, it returns false while a
// configuration is being applied, so that it does not block.
func (s *Source) Ready() bool {
	switch {
	case s.ready.Load():
		return true
	case !s.stack.TryLock(): // a configuration is being applied
		return false
	}
	defer s.stack.Unlock()
	return s.isReady()
}

// isReady is Ready for a caller that holds the lock of the stack.
func (s *Source) isReady() bool {
	if s.state.WarmingUp() {
		return false
	}
	if s.boot.Subscriptions.LDS && !s.cache.Status().InUse && !s.channelOf(resource.ListenerType).history.HasResponse(resource.ListenerType) {
		return false
	}
	ch := s.channelOf(resource.ListenerType)
	for name, l := range s.state.Listeners() {
		rejected := ch != nil && ch.history.IsRejected(resource.ListenerType, name)
		if l.Received != nil && l.Active == nil && l.HeldBack != l.Received && !rejected {
			return false
		}
	}
	s.ready.Store(true)
	return true
}

// logFirstConfig logs once that the first configuration of the control plane is applied. The caller
// holds the lock of the stack.
func (s *Source) logFirstConfig() {
	if s.firstConfigLogged || s.channelOf(resource.ClusterType) == nil && s.channelOf(resource.ListenerType) == nil || !s.isReady() {
		return
	}
	s.firstConfigLogged = true
	listeners, clusters := 0, 0
	for _, l := range s.state.Listeners() {
		if l.Active != nil {
			listeners++
		}
	}
	for _, c := range s.state.Clusters() {
		if c.Active != nil {
			clusters++
		}
	}
	s.opts.Log.Info("first configuration of the control plane applied", "listeners", listeners, "clusters", clusters)
}
