package nacos

import (
	"github.com/weft-proxy/weft/pkg/registry"
)

// Subscribe subscribes to a service: see registry.Registry. notify must not call stop.
func (r *Registry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	sub := &subscription{Notifier: registry.NewNotifier(notify), service: s}
	r.mu.Lock()
	r.subscriptions[sub] = struct{}{}
	r.mu.Unlock()
	signal(r.wakeWatcher)
	return func() {
		sub.End()
		r.mu.Lock()
		delete(r.subscriptions, sub)
		r.mu.Unlock()
	}
}

// subscription is a subscription to a service.
type subscription struct {
	*registry.Notifier

	service     registry.Service
	fingerprint string // of the last snapshot; "": none; owned by the watcher
}
