package xds

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// layeredRuntime holds the layers and their merged values. Later layers override earlier ones.
type layeredRuntime struct {
	layers    []runtimeLayer
	startedAt time.Time
	merged    *resource.Runtime
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
