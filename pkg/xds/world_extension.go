package xds

import (
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// setExtension takes the settings of a filter; nil: there are none of that name.
func (w *world) setExtension(name string, e *resource.Extension) {
	w.releaseAll(w.users.extensions[name])
	before := w.extensions[name]
	w.change(func(undo bool) {
		put(w.extensions, name, pick(undo, before, e))
		touch(w.dirtyListeners, w.users.extensions[name])
	})
}

// judge returns why settings are of no use to any of the listeners that ask for them.
func (w *world) judge(name string, e *resource.Extension) (wrong error) {
	for _, user := range slices.Sorted(maps.Keys(w.users.extensions[name])) {
		s := w.listeners[user]
		if s == nil {
			continue
		}
		for _, l := range []*resource.Listener{s.last, s.live} {
			if l == nil {
				continue
			}
			for _, slot := range l.Slots {
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

// spoil ends the wait for settings that came and were refused, unless there are others.
func (w *world) spoil(name string) {
	if w.extensions[name] == nil {
		w.setExtension(name, &resource.Extension{})
	}
}
