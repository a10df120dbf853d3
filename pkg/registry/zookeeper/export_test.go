package zookeeper

import "github.com/weft-proxy/weft/pkg/registry"

// Sweep makes a registry compare its nodes and registrations with the server immediately.
func Sweep(r registry.Registry) {
	zr, ok := r.(*Registry)
	if !ok {
		panic("not a registry of this package")
	}
	zr.callbacks.post(zr.resync)
}

// ForgetRevisions makes a registry remove the metadata of retired revisions immediately.
func ForgetRevisions(r registry.Registry) {
	zr, ok := r.(*Registry)
	if !ok {
		panic("not a registry of this package")
	}
	zr.callbacks.post(func() {
		for len(zr.retiredRevisions) > 0 {
			zr.removeRevision(zr.retiredRevisions[0])
		}
	})
}
