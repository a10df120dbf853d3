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

// layer is a layer of the runtime: static, or a resource.
type layer struct {
	resource string          // its name; "": it is static
	limit    time.Duration   // how long listeners wait for it, from the start; 0: for ever
	said     *resource.Layer // nil: nothing was yet
}

// runtime is the layers, of which a later one counts for more, and what they say.
type runtime struct {
	layers []layer
	begun  time.Time
	now    *resource.Runtime
}

// readRuntime reads layered_runtime of a bootstrap. The error is Problems.
func (b *bootstrap) readRuntime(data []byte) error {
	given, err := members("layered_runtime", data, "layers")
	if err != nil {
		return err
	}
	list, err := elements("layered_runtime.layers", given["layers"])
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i, text := range list {
		field := fmt.Sprintf("layered_runtime.layers[%d]", i)
		all, err := members(field, text, "name", "static_layer", "rtds_layer", "admin_layer")
		if err != nil {
			return err
		}
		name, err := readText(field+".name", all["name"])
		if err != nil {
			return err
		}
		if name == "" || names[name] {
			return Problems{{field + ".name", fmt.Sprintf("found %q, expected a unique name", name)}}
		}
		names[name] = true
		delete(all, "name")
		if len(all) != 1 {
			return Problems{{field, "expected exactly one of static_layer, rtds_layer and admin_layer"}}
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
func (b *bootstrap) readRuntimeLayer(field string, all map[string]json.RawMessage) ([]layer, error) {
	if text, ok := all["static_layer"]; ok {
		field += ".static_layer"
		s := &structpb.Struct{}
		if err := read(field, text, s); err != nil {
			return nil, err
		}
		said, err := resource.ReadLayer(field, s)
		if err != nil {
			return nil, placed(err)
		}
		return []layer{{said: said}}, nil
	}
	if text, ok := all["rtds_layer"]; ok {
		one, err := b.readRTDS(field+".rtds_layer", text)
		return []layer{one}, err
	}
	_, err := members(field+".admin_layer", all["admin_layer"]) // nobody can write to it
	return nil, err
}

// readText reads a JSON string; none is "".
func readText(field string, data []byte) (text string, err error) {
	if len(data) > 0 && json.Unmarshal(data, &text) != nil {
		return "", Problems{{field, "expected a string"}}
	}
	return text, nil
}

// readRTDS reads a layer that is a resource.
func (b *bootstrap) readRTDS(field string, data []byte) (layer, error) {
	all, err := members(field, data, "name", "rtds_config")
	if err != nil {
		return layer{}, err
	}
	name, err := readText(field+".name", all["name"])
	if err != nil {
		return layer{}, err
	}
	if name == "" {
		return layer{}, Problems{{field + ".name", "is missing"}}
	}
	limit, err := b.readFetched(field+".rtds_config", all["rtds_config"])
	return layer{resource: name, limit: limit}, err
}

// names are those of the layers that are resources.
func (r *runtime) names() (all []string) {
	for _, l := range r.layers {
		if l.resource != "" {
			all = append(all, l.resource)
		}
	}
	return all
}

// with returns r with what is said of layers of a name.
func (r runtime) with(name string, said *resource.Layer) runtime {
	r.layers = slices.Clone(r.layers)
	for i, l := range r.layers {
		if l.resource == name && name != "" {
			r.layers[i].said = said
		}
	}
	return r.settled()
}

// settled returns r with what its layers say.
func (r runtime) settled() runtime {
	var said []*resource.Layer
	for _, l := range r.layers {
		if l.said != nil {
			said = append(said, l.said)
		}
	}
	r.now = resource.NewRuntime(said...)
	return r
}

// setRuntime takes another runtime. Listeners that wait are looked at again.
func (w *world) setRuntime(r runtime) {
	before := w.runtime
	w.change(func(undo bool) {
		w.runtime = r
		if undo {
			w.runtime = before
		}
		for name, s := range w.listeners {
			if s.last != s.live {
				enter(w.dirtyListeners, name)
			}
		}
	})
}

// reread takes a listener that says the same by another runtime.
func (w *world) reread(name string, l *resource.Listener) {
	s := w.listener(name)
	w.dirtyListeners[name] = true
	if s.live == s.last {
		s.live = l
	}
	s.last, s.held = l, nil
}

// kinds are what resources may ask for, by the runtime r.
func (s *Source) kinds(r runtime) resource.Kinds {
	k := s.o.Kinds
	k.Unknown = s.o.Bootstrap.Unknown
	k.Runtime = r.now
	return k
}

// readLayer is read of a layer of the runtime. One that is refused is not waited for.
func (s *Source) readLayer(f *feed, n ads.Resource) error {
	said, err := resource.ReadRuntime(n.Body, s.kinds(s.world.runtime))
	if err == nil {
		err = s.takeLayer(f, n.Name, said)
	}
	if err != nil {
		s.spoilLayer(f, n.Name)
	}
	return err
}

// takeLayer takes what was said of a layer of the runtime, and reads again what goes by
// keys that have other values now. An error is why something could not be read: then
// nothing is changed.
func (s *Source) takeLayer(f *feed, name string, said *resource.Layer) error {
	before := s.world.runtime
	after := before.with(name, said)
	kinds := s.kinds(after)
	changed := func(keys []string) bool { return after.now.Differs(before.now, keys) }
	take := []func(){func() { s.world.setRuntime(after) }}
	for name, held := range f.client.Held(resource.RouteType) {
		if t := s.world.tables[name]; t != nil && changed(t.Keys) {
			next, err := resource.ReadRoutes(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.takeTable(name, next) })
		}
	}
	for name, held := range f.client.Held(resource.DubboRouteType) {
		if t := s.world.tables[resource.DubboTable(name)]; t != nil && changed(t.Keys) {
			next, err := resource.ReadDubboRoutes(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("route table %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.takeTable(resource.DubboTable(name), next) })
		}
	}
	for name, held := range f.client.Held(resource.ExtensionType) {
		if e := s.world.extensions[name]; e != nil && changed(e.Keys) {
			next, err := resource.ReadExtension(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("filter %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.world.setExtension(name, next) })
		}
	}
	for name, held := range f.client.Held(resource.ListenerType) {
		if one := s.world.listeners[name]; one != nil && one.last != nil && changed(one.last.Keys) {
			next, err := resource.ReadListener(held.Body, kinds)
			if err != nil {
				return fmt.Errorf("listener %s is not valid with this layer: %w", name, err)
			}
			take = append(take, func() { s.world.reread(name, next) })
		}
	}
	for _, g := range s.fixtures.listeners {
		if one := s.world.listeners[g.name]; one != nil && one.last != nil && changed(one.last.Keys) {
			next, err := resource.ReadListener(g.body, kinds)
			if err != nil {
				return fmt.Errorf("listener %s of static_resources is not valid with this layer: %w", g.name, err)
			}
			take = append(take, func() { s.world.reread(g.name, next) })
		}
	}
	for _, do := range take {
		do()
	}
	return nil
}

// spoilLayer ends the wait for a layer that came and was refused, unless there is another:
// until it is mended it is empty.
func (s *Source) spoilLayer(f *feed, name string) {
	waits := slices.ContainsFunc(s.world.runtime.layers, func(l layer) bool { return l.resource == name && l.said == nil })
	if !waits {
		return
	}
	if err := s.takeLayer(f, name, &resource.Layer{}); err != nil {
		s.o.Log.Error("still waiting for a runtime layer that was rejected", logResource, name, logError, err)
	}
}

// takeTable takes routes, which may be left with the control plane.
func (s *Source) takeTable(name string, t *resource.RouteTable) {
	t.Config.OnDemand = s.world.tableDemand()
	s.world.setTable(name, t)
}
