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

// RuntimeLayers returns the layers of the runtime; later layers override earlier ones. The caller
// must not change them.
func (s *State) RuntimeLayers() []bootstrap.RuntimeLayer { return s.runtime.layers }

// withLayer returns a copy of r in which values replace those of the RTDS layer of that name.
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

// capabilitiesWith returns the capabilities with the runtime r.
func (s *State) capabilitiesWith(r layeredRuntime) resource.Capabilities {
	capabilities := s.capabilities
	capabilities.Runtime = r.merged
	return capabilities
}

// setRuntime replaces the runtime. The listeners that are not active in their received version
// become dirty, because they may have waited for the layer.
func (s *State) setRuntime(r layeredRuntime) {
	previous := s.runtime
	s.undo.do(func(undo bool) {
		s.runtime = chooseValue(undo, previous, r)
		for name, e := range s.listeners.byName {
			if e.Received != e.Active {
				addDirty(s.listeners.dirty, name)
			}
		}
	})
}

// stageLayer is stageResource for a runtime layer. After a rejection, endLayerWait ends the wait of
// the listeners for the layer if it can.
func (st *stage) stageLayer(r ads.Resource) error {
	values, err := resource.ReadRuntime(r.Body, st.capabilitiesWith(st.runtime))
	if err == nil {
		err = st.setLayer(r.Name, values)
	}
	if err != nil {
		st.endLayerWait(r.Name)
	}
	return err
}

// setLayer replaces the values of a runtime layer and decodes again the resources that use changed
// keys. If one of these resources is no longer valid, setLayer returns an error and changes
// nothing.
func (st *stage) setLayer(name string, values *resource.Layer) error {
	previous := st.runtime
	nextRuntime := previous.withLayer(name, values)
	capabilities := st.capabilitiesWith(nextRuntime)
	keysChanged := func(keys []string) bool { return nextRuntime.merged.Differs(previous.merged, keys) }
	changes := []func(){func() { st.setRuntime(nextRuntime) }}
	for name, res := range st.client.Resources(resource.RouteType) {
		if t := st.tables[name]; t != nil && keysChanged(t.RuntimeKeys) {
			next, err := resource.ReadRoutes(res.Body, capabilities)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			changes = append(changes, func() { st.setTable(name, next) })
		}
	}
	for name, res := range st.client.Resources(resource.DubboRouteType) {
		if t := st.tables[resource.DubboTableName(name)]; t != nil && keysChanged(t.RuntimeKeys) {
			next, err := resource.ReadDubboRoutes(res.Body, capabilities)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			changes = append(changes, func() { st.setTable(resource.DubboTableName(name), next) })
		}
	}
	for name, res := range st.client.Resources(resource.ExtensionType) {
		if e := st.extensions[name]; e != nil && keysChanged(e.RuntimeKeys) {
			next, err := resource.ReadExtension(res.Body, capabilities)
			if err != nil {
				return fmt.Errorf("filter %s is not valid with this layer: %w", name, err)
			}
			changes = append(changes, func() { st.setExtension(name, next) })
		}
	}
	redecodeListener := func(origin, name string, body []byte) error {
		e := st.listeners.byName[name]
		if e == nil || e.Received == nil || !keysChanged(e.Received.RuntimeKeys) {
			return nil
		}
		next, err := resource.ReadListener(body, capabilities)
		if err != nil {
			return fmt.Errorf("listener %s%s is not valid with this layer: %w", name, origin, err)
		}
		changes = append(changes, func() { st.replaceListener(name, next) })
		return nil
	}
	for name, res := range st.client.Resources(resource.ListenerType) {
		if err := redecodeListener("", name, res.Body); err != nil {
			return err
		}
	}
	for _, l := range st.static.Listeners {
		if err := redecodeListener(" of static_resources", l.Name, l.Body); err != nil {
			return err
		}
	}
	for _, change := range changes {
		change()
	}
	return nil
}

// endLayerWait ends the wait for a rejected layer that has no values yet: the layer is empty until
// a valid version arrives. If that would make other resources invalid, the wait continues.
func (st *stage) endLayerWait(name string) {
	waiting := slices.ContainsFunc(st.runtime.layers, func(l bootstrap.RuntimeLayer) bool { return l.Resource == name && l.Values == nil })
	if !waiting {
		return
	}
	if err := st.setLayer(name, &resource.Layer{}); err != nil {
		st.result.AwaitedLayers = append(st.result.AwaitedLayers, ads.ResourceError{Name: name, Reason: err.Error()})
	}
}
