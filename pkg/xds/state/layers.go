package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// layeredRuntime holds the layers of the runtime and their merged values. Later layers override
// earlier ones.
type layeredRuntime struct {
	layers    []bootstrap.RuntimeLayer
	startedAt time.Time
	merged    *resource.Runtime
}

// withLayer returns r with the values of the RTDS layer of that name replaced.
func (r layeredRuntime) withLayer(name string, values *resource.Layer) layeredRuntime {
	r.layers = slices.Clone(r.layers)
	for i, l := range r.layers {
		if l.Resource == name && name != "" {
			r.layers[i].Values = values
		}
	}
	return r.merge()
}

// merge returns r with merged computed from its layers.
func (r layeredRuntime) merge() layeredRuntime {
	r.merged = bootstrap.MergeLayers(r.layers)
	return r
}

// capabilitiesWith returns what resources may use with the runtime r.
func (s *State) capabilitiesWith(r layeredRuntime) resource.Capabilities {
	k := s.capabilities
	k.Runtime = r.merged
	return k
}

// setRuntime replaces the runtime and reevaluates the listeners that are not active in their
// received version.
func (s *State) setRuntime(r layeredRuntime) {
	before := s.runtime
	s.undo.do(func(undo bool) {
		s.runtime = chooseValue(undo, before, r)
		for name, e := range s.listeners.byName {
			if e.Received != e.Active {
				addDirty(s.listeners.dirty, name)
			}
		}
	})
}

// stageLayer is stageResource for a runtime layer. Listeners do not wait for a rejected layer.
func (g *stage) stageLayer(n ads.Resource) error {
	values, err := resource.ReadRuntime(n.Body, g.capabilitiesWith(g.runtime))
	if err == nil {
		err = g.setLayer(n.Name, values)
	}
	if err != nil {
		g.endLayerWait(n.Name)
	}
	return err
}

// setLayer replaces the values of a runtime layer and decodes again the resources that use changed
// keys. If one of them is not valid any more, it returns an error and changes nothing.
func (g *stage) setLayer(name string, values *resource.Layer) error {
	before := g.runtime
	after := before.withLayer(name, values)
	k := g.capabilitiesWith(after)
	changed := func(keys []string) bool { return after.merged.Differs(before.merged, keys) }
	take := []func(){func() { g.setRuntime(after) }}
	for name, held := range g.client.Resources(resource.RouteType) {
		if t := g.tables[name]; t != nil && changed(t.RuntimeKeys) {
			next, err := resource.ReadRoutes(held.Body, k)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { g.setTable(name, next) })
		}
	}
	for name, held := range g.client.Resources(resource.DubboRouteType) {
		if t := g.tables[resource.DubboTableName(name)]; t != nil && changed(t.RuntimeKeys) {
			next, err := resource.ReadDubboRoutes(held.Body, k)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { g.setTable(resource.DubboTableName(name), next) })
		}
	}
	for name, held := range g.client.Resources(resource.ExtensionType) {
		if e := g.extensions[name]; e != nil && changed(e.RuntimeKeys) {
			next, err := resource.ReadExtension(held.Body, k)
			if err != nil {
				return fmt.Errorf("filter %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { g.setExtension(name, next) })
		}
	}
	listener := func(of, name string, body []byte) error {
		e := g.listeners.byName[name]
		if e == nil || e.Received == nil || !changed(e.Received.RuntimeKeys) {
			return nil
		}
		next, err := resource.ReadListener(body, k)
		if err != nil {
			return fmt.Errorf("listener %s%s is not valid with this layer: %w", name, of, err)
		}
		take = append(take, func() { g.replaceListener(name, next) })
		return nil
	}
	for name, held := range g.client.Resources(resource.ListenerType) {
		if err := listener("", name, held.Body); err != nil {
			return err
		}
	}
	for _, one := range g.static.Listeners {
		if err := listener(" of static_resources", one.Name, one.Body); err != nil {
			return err
		}
	}
	for _, do := range take {
		do()
	}
	return nil
}

// endLayerWait ends the wait for a layer that was rejected, unless it has values. The layer is
// empty until a valid version arrives.
func (g *stage) endLayerWait(name string) {
	waits := slices.ContainsFunc(g.runtime.layers, func(l bootstrap.RuntimeLayer) bool { return l.Resource == name && l.Values == nil })
	if !waits {
		return
	}
	if err := g.setLayer(name, &resource.Layer{}); err != nil {
		g.staged.AwaitedLayers = append(g.staged.AwaitedLayers, ads.ResourceError{Name: name, Reason: err.Error()})
	}
}
