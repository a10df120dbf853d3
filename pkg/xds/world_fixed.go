package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// fixed are the names of what the file has in static_resources: a control plane can
// neither take it away nor say something else of it.
type fixed struct{ clusters, listeners, secrets map[string]bool }

// setFixed takes the names of what static_resources have.
func (w *world) setFixed(x *fixtures) {
	before := w.fixed
	after := fixed{clusters: givenNames(x.clusters), listeners: givenNames(x.listeners), secrets: givenNames(x.secrets)}
	w.change(func(undo bool) {
		for _, names := range []map[string]bool{before.secrets, after.secrets} {
			for name := range names {
				w.references.secrets.notice([]resource.SecretRef{{Name: name}}) // as it was
			}
		}
		w.fixed = pick(undo, before, after)
	})
}

func givenNames(list []given) map[string]bool {
	names := make(map[string]bool, len(list))
	for _, g := range list {
		names[g.name] = true
	}
	return names
}

// isFixed reports whether the file has a secret: it is not asked for.
func (w *world) isFixed(ref resource.SecretRef) bool {
	return ref.From == (resource.SecretSource{}) && w.fixed.secrets[ref.Name]
}
