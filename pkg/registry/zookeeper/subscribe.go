package zookeeper

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/registry"
)

// subscribedInterface is an interface with subscriptions. Subscriptions to all of its groups and
// versions share its znodes. The loop owns it.
type subscribedInterface struct {
	name          string
	subscriptions map[*subscription]struct{}

	providers, configurators, routers *node
	mapping                           *node            // nil: the name is not valid as a znode
	rules                             *node            // the parent of all rules
	extraNodes                        map[string]*node // by path: applications, instances, rules
}

// Subscribe subscribes to a service: see registry.Registry. notify must not call stop.
func (r *Registry) Subscribe(s registry.Service, notify func(registry.Snapshot)) (stop func()) {
	sub := &subscription{Notifier: registry.NewNotifier(notify), service: s}
	r.trackSubscription(sub)
	r.callbacks.post(func() { r.startSubscription(sub) })
	return func() {
		sub.End()
		r.untrackSubscription(sub)
		r.callbacks.post(func() { r.stopSubscription(sub) })
	}
}

func (r *Registry) startSubscription(sub *subscription) {
	name := sub.service.Interface
	s := r.interfaces[name]
	if s == nil {
		if err := checkElement(escape(name)); err != nil {
			r.log.Warn("service name is not valid in ZooKeeper", "service", sub.service.String(), "error", err)
			return
		}
		s = &subscribedInterface{name: name, subscriptions: map[*subscription]struct{}{}, extraNodes: map[string]*node{}}
		r.interfaces[name] = s
		s.providers = r.useNode(r.layout.category(name, registry.Providers), kindURLs, s)
		s.configurators = r.useNode(r.layout.category(name, registry.Configurators), kindURLs, s)
		s.routers = r.useNode(r.layout.category(name, registry.Routers), kindURLs, s)
		s.rules = r.useNode(r.layout.rules(), kindChildren, s)
		if checkElement(name) == nil {
			s.mapping = r.useNode(r.layout.mapping(name), kindData, s)
		}
	}
	s.subscriptions[sub] = struct{}{}
	r.staleInterfaces[s] = struct{}{}
}

func (r *Registry) stopSubscription(sub *subscription) {
	s := r.interfaces[sub.service.Interface]
	if s == nil {
		return
	}
	delete(s.subscriptions, sub)
	if len(s.subscriptions) > 0 {
		r.staleInterfaces[s] = struct{}{} // fewer rules may apply
		return
	}
	delete(r.interfaces, s.name)
	delete(r.staleInterfaces, s)
	for _, n := range s.baseNodes() {
		r.releaseNode(n, s)
	}
	for _, n := range s.extraNodes {
		r.releaseNode(n, s)
	}
}

// baseNodes returns all nodes except extraNodes.
func (s *subscribedInterface) baseNodes() []*node {
	nodes := []*node{s.providers, s.configurators, s.routers, s.rules}
	if s.mapping != nil {
		nodes = append(nodes, s.mapping)
	}
	return nodes
}

// markStale schedules a refresh of an interface's snapshots.
func (r *Registry) markStale(name string) {
	if s := r.interfaces[name]; s != nil {
		r.staleInterfaces[s] = struct{}{}
	}
}

// refresh computes the additional nodes that an interface needs. Once all nodes have been read, it
// notifies the subscriptions whose snapshot has changed.
func (r *Registry) refresh(s *subscribedInterface) {
	for _, n := range s.baseNodes() {
		if n.content == nil && !(n == s.mapping && n.readErr != nil) {
			return
		}
	}
	needed := map[string]kind{}
	for _, name := range s.applications() {
		path := r.layout.application(name)
		needed[path] = kindChildren
		if parentNode := s.extraNodes[path]; parentNode != nil && parentNode.content != nil {
			for _, id := range parentNode.content.names {
				needed[path+"/"+id] = kindInstances
			}
		}
	}
	for _, rule := range r.rulesOf(s) {
		needed[rule.path] = kindData
	}
	for path, n := range s.extraNodes {
		if _, ok := needed[path]; !ok {
			delete(s.extraNodes, path)
			r.releaseNode(n, s)
		}
	}
	for path, k := range needed {
		if s.extraNodes[path] == nil {
			s.extraNodes[path] = r.useNode(path, k, s)
		}
	}
	for _, n := range s.extraNodes {
		// Unreadable applications and instances are skipped; unreadable rules are not.
		if n.content == nil && (n.readErr == nil || n.kind == kindData) {
			return
		}
	}
	for _, n := range s.extraNodes {
		if n.kind != kindChildren || n.content == nil {
			continue
		}
		for _, id := range n.content.names {
			if s.extraNodes[n.path+"/"+id] == nil {
				r.staleInterfaces[s] = struct{}{} // useNode returned a parent that another interface had read
				return
			}
		}
	}
	for sub := range s.subscriptions {
		if snap, fingerprint := r.snapshot(s, sub.service); sub.fingerprint == nil || !slices.Equal(sub.fingerprint, fingerprint) {
			sub.fingerprint = fingerprint
			sub.Notify(snap)
		}
	}
}

// applications returns the applications that the mapping names as providers (Dubbo 3).
func (s *subscribedInterface) applications() []string {
	if s.mapping == nil || s.mapping.content == nil {
		return nil
	}
	return readMapping(s.mapping.content.data)
}

// snapshot returns the snapshot of a service, and a fingerprint that changes with it.
func (r *Registry) snapshot(s *subscribedInterface, requested registry.Service) (snap registry.Snapshot, fingerprint []string) {
	fingerprint = []string{} // not nil: there is a snapshot
	accept := func(n *node) (accepted []registry.URL) {
		for i, u := range n.content.urls {
			if acceptsOrWildcard(requested, u) {
				accepted, fingerprint = append(accepted, u), append(fingerprint, n.content.names[i])
			}
		}
		fingerprint = append(fingerprint, "")
		return slices.Clone(accepted) // copied, because the snapshot is retained and append may have allocated more
	}
	snap.Providers = accept(s.providers)
	snap.Configurators = accept(s.configurators)
	snap.Routers = accept(s.routers)
	for _, rule := range r.rulesOf(s) {
		n := s.extraNodes[rule.path]
		if !rule.appliesTo(requested) || n == nil || n.content == nil || !n.content.exists {
			continue
		}
		u := rule.url(n.content.data)
		if u.Category() == registry.Configurators {
			snap.Configurators = append(snap.Configurators, u)
		} else {
			snap.Routers = append(snap.Routers, u)
		}
		fingerprint = append(fingerprint, n.path, n.content.data)
	}
	for _, name := range s.applications() {
		parentNode := s.extraNodes[r.layout.application(name)]
		if parentNode == nil || parentNode.content == nil {
			continue
		}
		for _, id := range parentNode.content.names {
			n := s.extraNodes[parentNode.path+"/"+id]
			if n == nil || n.content == nil || n.content.instance == nil {
				continue
			}
			snap.Instances = append(snap.Instances, *n.content.instance)
			fingerprint = append(fingerprint, n.path, n.content.data)
		}
	}
	return snap, fingerprint
}

// acceptsOrWildcard is like requested.Accepts, but also accepts rules for every interface.
func acceptsOrWildcard(requested registry.Service, u registry.URL) bool {
	if u.Category() != registry.Providers && u.Service().Interface == "*" {
		requested.Interface = "*"
	}
	return requested.Accepts(u)
}

// subscription is a subscription to a service.
type subscription struct {
	*registry.Notifier

	service     registry.Service
	fingerprint []string // of the last snapshot; nil: none; owned by the loop
}
