package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// staticNames are the names of what the file has in static_resources: a control plane can
// neither take it away nor say something else of it.
type staticNames struct{ clusters, listeners, secrets map[string]bool }

// setStaticNames takes the names of what static_resources have.
func (w *state) setStaticNames(x *staticResources) {
	before := w.staticNames
	after := staticNames{clusters: staticResourceNames(x.clusters), listeners: staticResourceNames(x.listeners), secrets: staticResourceNames(x.secrets)}
	w.mutate(func(undo bool) {
		for _, names := range []map[string]bool{before.secrets, after.secrets} {
			for name := range names {
				w.references.secrets.recordPrevious([]resource.SecretRef{{Name: name}}) // as it was
			}
		}
		w.staticNames = chooseValue(undo, before, after)
	})
}

func staticResourceNames(list []staticResource) map[string]bool {
	names := make(map[string]bool, len(list))
	for _, g := range list {
		names[g.name] = true
	}
	return names
}

// isStaticSecret reports whether the file has a secret: it is not asked for.
func (w *state) isStaticSecret(ref resource.SecretRef) bool {
	return ref.From == (resource.SecretSource{}) && w.staticNames.secrets[ref.Name]
}
