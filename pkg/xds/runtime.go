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

// runtimeLayer is a layer of the runtime: static, or a resource.
type runtimeLayer struct {
	resource string          // its name; "": it is static
	timeout  time.Duration   // how long listeners wait for it, from the start; 0: for ever
	values   *resource.Layer // nil: nothing was yet
}

// layeredRuntime is the layers, of which a later one counts for more, and what they say.
type layeredRuntime struct {
	layers    []runtimeLayer
	startedAt time.Time
	merged    *resource.Runtime
}

// readRuntime reads layered_runtime of a bootstrap. The error is Problems.
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

// readRuntimeLayer reads what a layer is beside its name; none is a layer that stays empty.
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
	_, err := splitObject(field+".admin_layer", all["admin_layer"]) // nobody can write to it
	return nil, err
}

// decodeString reads a JSON string; none is "".
func decodeString(field string, data []byte) (text string, err error) {
	if len(data) > 0 && json.Unmarshal(data, &text) != nil {
		return "", FieldErrors{{field, "expected a string"}}
	}
	return text, nil
}

// readRTDS reads a layer that is a resource.
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

// rtdsNames are those of the layers that are resources.
func (r *layeredRuntime) rtdsNames() (all []string) {
	for _, l := range r.layers {
		if l.resource != "" {
			all = append(all, l.resource)
		}
	}
	return all
}

// withLayer returns r with what is said of layers of a name.
func (r layeredRuntime) withLayer(name string, said *resource.Layer) layeredRuntime {
	r.layers = slices.Clone(r.layers)
	for i, l := range r.layers {
		if l.resource == name && name != "" {
			r.layers[i].values = said
		}
	}
	return r.merge()
}

// merge returns r with what its layers say.
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

// setRuntime takes another runtime. Listeners that wait are looked at again.
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

// replaceListener takes a listener that says the same by another runtime.
func (w *state) replaceListener(name string, l *resource.Listener) {
	s := w.mutableListener(name)
	w.dirtyListeners[name] = true
	if s.active == s.received {
		s.active = l
	}
	s.received, s.heldBack = l, nil
}

// capabilities are what resources may ask for, by the runtime r.
func (s *Source) capabilities(r layeredRuntime) resource.Capabilities {
	k := s.opts.Capabilities
	k.UnknownFields = s.opts.Bootstrap.UnknownFields
	k.Runtime = r.merged
	return k
}

// stageLayer is read of a layer of the runtime. One that is refused is not waited for.
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

// setLayer takes what was said of a layer of the runtime, and reads again what goes by
// keys that have other values now. An error is why something could not be read: then
// nothing is changed.
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

// endLayerWait ends the wait for a layer that came and was refused, unless there is another:
// until it is mended it is empty.
func (s *Source) endLayerWait(f *xdsChannel, name string) {
	waits := slices.ContainsFunc(s.state.runtime.layers, func(l runtimeLayer) bool { return l.resource == name && l.values == nil })
	if !waits {
		return
	}
	if err := s.setLayer(f, name, &resource.Layer{}); err != nil {
		s.opts.Log.Error("still waiting for a runtime layer that was rejected", logResource, name, logError, err)
	}
}

// setTable takes routes, which may be left with the control plane.
func (s *Source) setTable(name string, t *resource.RouteTable) {
	t.Config.OnDemand = s.state.tableOnDemand()
	s.state.setTable(name, t)
}
