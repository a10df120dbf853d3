package nacos

import (
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// Subscribe follows a service: see registry.Registry. stop must not be called by notify.
func (r *Registry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	sub := &subscription{Notifier: registry.NewDelivery(notify), service: s}
	r.mu.Lock()
	r.subscriptions[sub] = struct{}{}
	r.mu.Unlock()
	poke(r.look)
	return func() {
		sub.End()
		r.mu.Lock()
		delete(r.subscriptions, sub)
		r.mu.Unlock()
	}
}

// subscription is one who is told of a service.
type subscription struct {
	*registry.Notifier

	service registry.Service
	marks   string // what the last view was made of; "": none; owned by the watcher
}
