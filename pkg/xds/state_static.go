package xds

import "github.com/weft-proxy/weft/pkg/xds/resource"

// staticNames are the names of the resources in static_resources. A control plane can neither
// remove nor replace those resources.
type staticNames struct{ clusters, listeners, secrets map[string]bool }

// setStaticNames stores the names of the resources in x.
func (w *state) setStaticNames(x *staticResources) {
	before := w.staticNames
	after := staticNames{clusters: staticResourceNames(x.clusters), listeners: staticResourceNames(x.listeners), secrets: staticResourceNames(x.secrets)}
	w.mutate(func(undo bool) {
		for _, names := range []map[string]bool{before.secrets, after.secrets} {
			for name := range names {
				w.references.secrets.recordPrevious([]resource.SecretRef{{Name: name}}) // before the names change
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

// isStaticSecret reports whether static_resources defines a secret, so that it is not requested.
func (w *state) isStaticSecret(ref resource.SecretRef) bool {
	return ref.From == (resource.SecretSource{}) && w.staticNames.secrets[ref.Name]
}
