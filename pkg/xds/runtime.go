package xds

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// runtimeLayer is a layer of the runtime: static or from RTDS.
type runtimeLayer struct {
	resource string          // name of the RTDS resource; "": static
	timeout  time.Duration   // how long listeners wait for it after the start; 0: no limit
	values   *resource.Layer // nil: not received yet
}

// layeredRuntime holds the layers and their merged values. Later layers override earlier ones.
type layeredRuntime struct {
	layers    []runtimeLayer
	startedAt time.Time
	merged    *resource.Runtime
}

// readRuntime reads layered_runtime of a bootstrap. An error is of type FieldErrors.
func (b *bootstrap) readRuntime(data []byte) error {
	given, err := splitObject("layered_runtime", data, "layers")
	if err != nil {
		return err
	}
	list, err := splitList("layered_runtime.layers", given["layers"])
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i, text := range list {
		field := fmt.Sprintf("layered_runtime.layers[%d]", i)
		all, err := splitObject(field, text, "name", "static_layer", "rtds_layer", "admin_layer")
		if err != nil {
			return err
		}
		name, err := decodeString(field+".name", all["name"])
		if err != nil {
			return err
		}
		if name == "" || names[name] {
			return FieldErrors{{field + ".name", fmt.Sprintf("found %q, expected a unique name", name)}}
		}
		names[name] = true
		delete(all, "name")
		if len(all) != 1 {
			return FieldErrors{{field, "expected exactly one of static_layer, rtds_layer and admin_layer"}}
		}
		one, err := b.readRuntimeLayer(field, all)
		if err != nil {
			return err
		}
		b.layers = append(b.layers, one...)
	}
	return nil
}

// readRuntimeLayer reads a layer without its name. It returns no layer for an admin_layer, which
// stays empty.
func (b *bootstrap) readRuntimeLayer(field string, all map[string]json.RawMessage) ([]runtimeLayer, error) {
	if text, ok := all["static_layer"]; ok {
		field += ".static_layer"
		s := &structpb.Struct{}
		if err := decodeField(field, text, s); err != nil {
			return nil, err
		}
		said, err := resource.ReadLayer(field, s)
		if err != nil {
			return nil, fieldErrorsOfReasons(err)
		}
		return []runtimeLayer{{values: said}}, nil
	}
	if text, ok := all["rtds_layer"]; ok {
		one, err := b.readRTDS(field+".rtds_layer", text)
		return []runtimeLayer{one}, err
	}
	_, err := splitObject(field+".admin_layer", all["admin_layer"]) // there is no way to write to it
	return nil, err
}

// decodeString reads a JSON string; no data is "".
func decodeString(field string, data []byte) (text string, err error) {
	if len(data) > 0 && json.Unmarshal(data, &text) != nil {
		return "", FieldErrors{{field, "expected a string"}}
	}
	return text, nil
}

// readRTDS reads an rtds_layer.
func (b *bootstrap) readRTDS(field string, data []byte) (runtimeLayer, error) {
	all, err := splitObject(field, data, "name", "rtds_config")
	if err != nil {
		return runtimeLayer{}, err
	}
	name, err := decodeString(field+".name", all["name"])
	if err != nil {
		return runtimeLayer{}, err
	}
	if name == "" {
		return runtimeLayer{}, FieldErrors{{field + ".name", "is missing"}}
	}
	limit, err := b.readInitialFetchTimeout(field+".rtds_config", all["rtds_config"])
	return runtimeLayer{resource: name, timeout: limit}, err
}

// rtdsNames returns the names of the RTDS layers.
func (r *layeredRuntime) rtdsNames() (all []string) {
	for _, l := range r.layers {
		if l.resource != "" {
			all = append(all, l.resource)
		}
	}
	return all
}

// withLayer returns r with the values of the RTDS layer of that name replaced.
func (r layeredRuntime) withLayer(name string, said *resource.Layer) layeredRuntime {
	r.layers = slices.Clone(r.layers)
	for i, l := range r.layers {
		if l.resource == name && name != "" {
			r.layers[i].values = said
		}
	}
	return r.merge()
}

// merge returns r with merged computed from its layers.
func (r layeredRuntime) merge() layeredRuntime {
	var said []*resource.Layer
	for _, l := range r.layers {
		if l.values != nil {
			said = append(said, l.values)
		}
	}
	r.merged = resource.NewRuntime(said...)
	return r
}

// setRuntime replaces the runtime and reevaluates the listeners that are not active in their
// received version.
func (w *state) setRuntime(r layeredRuntime) {
	before := w.runtime
	w.mutate(func(undo bool) {
		w.runtime = r
		if undo {
			w.runtime = before
		}
		for name, s := range w.listeners {
			if s.received != s.active {
				addDirty(w.dirtyListeners, name)
			}
		}
	})
}

// replaceListener replaces a listener by the same resource decoded with another runtime.
func (w *state) replaceListener(name string, l *resource.Listener) {
	s := w.mutableListener(name)
	w.dirtyListeners[name] = true
	if s.active == s.received {
		s.active = l
	}
	s.received, s.heldBack = l, nil
}

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
