package zookeeper

import "github.com/weft-proxy/weft/pkg/registry"

// Sweep makes a registry compare the desired state with the server immediately.
func Sweep(r registry.Registry) {
	own, ok := r.(*Registry)
	if !ok {
		panic("it is no registry of this package")
	}
	own.callbacks.post(own.resync)
}

// ForgetRevisions makes a registry remove the metadata of retired revisions immediately.
func ForgetRevisions(r registry.Registry) {
	own, ok := r.(*Registry)
	if !ok {
		panic("it is no registry of this package")
	}
	own.callbacks.post(func() {
		for len(own.retiredRevisions) > 0 {
			own.removeRevision(own.retiredRevisions[0])
		}
	})
}
