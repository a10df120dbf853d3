package zookeeper

import "github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"

// Sweep has a registry compare all that is wanted with what is there, without waiting for
// the time to do so.
func Sweep(r registry.Registry) {
	own, ok := r.(*Registry)
	if !ok {
		panic("it is no registry of this package")
	}
	own.mailbox.post(own.resync)
}

// ForgetRevisions has a registry remove metadata that nobody needs, without waiting for the
// time to do so.
func ForgetRevisions(r registry.Registry) {
	own, ok := r.(*Registry)
	if !ok {
		panic("it is no registry of this package")
	}
	own.mailbox.post(func() {
		for len(own.past) > 0 {
			own.forgetRevision(own.past[0])
		}
	})
}
