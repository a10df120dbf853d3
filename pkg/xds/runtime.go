package xds

import (
	"fmt"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// capabilities returns what resources may use with the runtime r.
func (s *Source) capabilities(r layeredRuntime) resource.Capabilities {
	k := s.opts.Capabilities
	k.UnknownFields = s.opts.Bootstrap.UnknownFields
	k.Runtime = r.merged
	return k
}

// stageLayer is stageResource for a runtime layer. Listeners do not wait for a rejected layer.
func (s *Source) stageLayer(f *xdsChannel, n ads.Resource) error {
	said, err := resource.ReadRuntime(n.Body, s.capabilities(s.state.runtime))
	if err == nil {
		err = s.setLayer(f, n.Name, said)
	}
	if err != nil {
		s.endLayerWait(f, n.Name)
	}
	return err
}

// setLayer replaces the values of a runtime layer and decodes again the resources that use changed
// keys. If one of them is not valid any more, it returns an error and changes nothing.
func (s *Source) setLayer(f *xdsChannel, name string, said *resource.Layer) error {
	before := s.state.runtime
	after := before.withLayer(name, said)
	kinds := s.capabilities(after)
	changed := func(keys []string) bool { return after.merged.Differs(before.merged, keys) }
	take := []func(){func() { s.state.setRuntime(after) }}
	for name, held := range f.client.Resources(resource.RouteType) {
		if t := s.state.tables[name]; t != nil && changed(t.RuntimeKeys) {
			next, err := resource.ReadRoutes(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.setTable(name, next) })
		}
	}
	for name, held := range f.client.Resources(resource.DubboRouteType) {
		if t := s.state.tables[resource.DubboTableName(name)]; t != nil && changed(t.RuntimeKeys) {
			next, err := resource.ReadDubboRoutes(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.setTable(resource.DubboTableName(name), next) })
		}
	}
	for name, held := range f.client.Resources(resource.ExtensionType) {
		if e := s.state.extensions[name]; e != nil && changed(e.RuntimeKeys) {
			next, err := resource.ReadExtension(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("filter %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.state.setExtension(name, next) })
		}
	}
	for name, held := range f.client.Resources(resource.ListenerType) {
		if one := s.state.listeners[name]; one != nil && one.received != nil && changed(one.received.RuntimeKeys) {
			next, err := resource.ReadListener(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("listener %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.state.replaceListener(name, next) })
		}
	}
	for _, g := range s.staticResources.listeners {
		if one := s.state.listeners[g.name]; one != nil && one.received != nil && changed(one.received.RuntimeKeys) {
			next, err := resource.ReadListener(g.body, kinds)
			if err != nil {
				return fmt.Errorf("listener %s of static_resources is not valid with this layer: %w", g.name, err)
			}
			take = append(take, func() { s.state.replaceListener(g.name, next) })
		}
	}
	for _, do := range take {
		do()
	}
	return nil
}

// endLayerWait ends the wait for a layer that was rejected, unless it has values. The layer is
// empty until a valid version arrives.
func (s *Source) endLayerWait(f *xdsChannel, name string) {
	waits := slices.ContainsFunc(s.state.runtime.layers, func(l runtimeLayer) bool { return l.resource == name && l.values == nil })
	if !waits {
		return
	}
	if err := s.setLayer(f, name, &resource.Layer{}); err != nil {
		s.opts.Log.Error("still waiting for a runtime layer that was rejected", logResource, name, logError, err)
	}
}

// setTable stores a route table with the on-demand settings of tables.
func (s *Source) setTable(name string, t *resource.RouteTable) {
	t.Config.OnDemand = s.state.tableOnDemand()
	s.state.setTable(name, t)
}
