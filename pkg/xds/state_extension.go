package xds

import (
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// setExtension stores the configuration of an extension; nil removes it.
func (w *state) setExtension(name string, e *resource.Extension) {
	w.releaseAll(w.dependents.extensions[name])
	before := w.extensions[name]
	w.mutate(func(undo bool) {
		setOrDelete(w.extensions, name, chooseValue(undo, before, e))
		markDirty(w.dirtyListeners, w.dependents.extensions[name])
	})
}

// checkExtension returns an error if listeners refer to the extension and none of them can use the
// configuration e.
func (w *state) checkExtension(name string, e *resource.Extension) (wrong error) {
	for _, user := range slices.Sorted(maps.Keys(w.dependents.extensions[name])) {
		s := w.listeners[user]
		if s == nil {
			continue
		}
		for _, l := range []*resource.Listener{s.received, s.active} {
			if l == nil {
				continue
			}
			for _, slot := range l.DynamicFilters {
				if slot.Name != name {
					continue
				}
				if wrong = slot.Check(e); wrong == nil {
					return nil
				}
			}
		}
	}
	return wrong
}

// endExtensionWait ends the wait for an extension whose configuration was rejected, unless an
// earlier version is there.
func (w *state) endExtensionWait(name string) {
	if w.extensions[name] == nil {
		w.setExtension(name, &resource.Extension{})
	}
}
