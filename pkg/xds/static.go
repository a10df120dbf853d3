package xds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// addTo adds the resources of x to w, in place of those of before, which is nil at the start.
// Unchanged resources stay. It decodes listeners with k and checks references against b. An error
// is of type FieldErrors; the caller rolls w back then.
func (x *staticResources) addTo(w *state, before *staticResources, b *bootstrap, k resource.Capabilities, now time.Time) error {
	var wrong FieldErrors
	had := before.bodies()
	differs := func(kind string, g staticResource) bool {
		body, ok := had[kind+g.name]
		return !ok || body != string(g.body)
	}
	// The control plane may already define a name that w has and before does not.
	taken := func(kind, name string, is bool) error {
		if _, ours := had[kind+name]; is && !ours {
			return fmt.Errorf("the control plane also defines the name %q", name)
		}
		return nil
	}
	w.setStaticNames(x)
	for _, g := range x.secrets {
		if ref := (resource.SecretRef{Name: g.name}); differs("secret/", g) {
			w.setSecret(ref, x.parsedSecrets[ref])
		}
	}
	for _, g := range x.clusters {
		c := x.parsedClusters[g.name]
		err := cmp.Or(taken("cluster/", g.name, w.clusters[g.name] != nil), b.checkReferences(w, c.EDSServiceName != "", c.Secrets()))
		if err != nil {
			wrong = append(wrong, FieldError{g.field, err.Error()})
		} else if differs("cluster/", g) {
			w.setCluster(g.name, c, now)
		}
	}
	for _, g := range x.listeners {
		l, err := resource.ReadListener(g.body, k)
		if err == nil {
			err = b.checkReferences(w, len(l.RouteConfigNames)+len(l.DynamicFilters) > 0, l.Secrets())
		}
		if err == nil {
			err = cmp.Or(compileRoutes(l.InlineTables), taken("listener/", g.name, w.listeners[g.name] != nil))
		}
		if err != nil {
			wrong = append(wrong, g.fieldErrors(err)...)
		} else if differs("listener/", g) {
			w.setListener(g.name, l, now)
		}
	}
	x.removeFrom(w, before)
	return wrong.asError()
}

// removeFrom removes from w the clusters and listeners that are in before and not in x.
func (x *staticResources) removeFrom(w *state, before *staticResources) {
	if before == nil {
		return
	}
	for _, g := range before.clusters {
		if !w.staticNames.clusters[g.name] {
			w.removeCluster(g.name)
		}
	}
	for _, g := range before.listeners {
		if !w.staticNames.listeners[g.name] {
			w.removeListener(g.name)
		}
	}
}

// checkReferences returns an error if a static resource refers to something that is not available:
// a secret, or, if others is set, another resource of the control plane.
func (b *bootstrap) checkReferences(w *state, others bool, secrets []resource.SecretRef) error {
	if others && b.adsCluster == "" {
		return errors.New("refers to resources of a control plane, but dynamic_resources.ads_config does not define one")
	}
	for _, r := range secrets {
		_, known := b.targets[r.From.Cluster]
		switch {
		case r.From.Cluster != "" && !known:
			return unknownSecretSource(r)
		case r.From.Cluster == "" && b.adsCluster == "" && !w.staticNames.secrets[r.Name]:
			return fmt.Errorf("secret %q is not defined in static_resources.secrets, and there is no control plane", r.Name)
		}
	}
	return nil
}

func unknownSecretSource(r resource.SecretRef) error {
	return fmt.Errorf("secret %q: envoy_grpc.cluster_name: %q is not a cluster of static_resources with an address", r.Name, r.From.Cluster)
}

// firstConflict returns the field of the first resource whose name the file also defines, "" if
// there is none.
func (x *staticResources) firstConflict(file *config.Snapshot) string {
	named := func(all []staticResource, name string) string {
		at := slices.IndexFunc(all, func(g staticResource) bool { return g.name == name })
		if at < 0 {
			return ""
		}
		return all[at].field
	}
	for _, c := range file.Clusters {
		if field := named(x.clusters, c.Name); field != "" {
			return field
		}
	}
	for _, l := range file.Listeners {
		if field := named(x.listeners, l.Name); field != "" {
			return field
		}
	}
	return ""
}

// compileRoutes returns an error if a table cannot be compiled.
func compileRoutes(tables []*config.RouteTable) error {
	for _, t := range tables {
		if _, err := router.Compile(t); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return nil
}

// MergeStatic returns the configuration of a file with its static_resources, as far as they need no
// control plane, and the fields that have no effect or need a warning. It does not bind addresses,
// read files or open connections. It returns the error that New or the first ApplyFile would
// return, or one for routes to unknown clusters. An error with more than one field is of type
// FieldErrors (errors.As).
func MergeStatic(file *config.Snapshot, k resource.Capabilities) (whole *config.Snapshot, ignored FieldErrors, err error) {
	boot, err := readBootstrap(file.Bootstrap)
	w := newState()
	w.onDemand = newOnDemandState(file.Bootstrap.OnDemand)
	w.runtime = layeredRuntime{layers: boot.layers}.merge()
	k.Node, k.Runtime = resource.NodeOf(boot.node), w.runtime.merged
	if err != nil {
		return nil, nil, boot.addListenerErrors(err, k)
	}
	now := time.Now()
	if err := boot.staticResources.addTo(w, nil, boot, k, now); err != nil {
		return nil, nil, err
	}
	if err := w.checkNameConflicts(file); err != nil {
		return nil, nil, fieldErrorsOf(boot.staticResources.firstConflict(file), err)
	}
	if !boot.subscriptions.cds && !file.Dubbo.Enable { // otherwise further clusters can appear
		if ignored, err = boot.staticResources.checkClusters(file); err != nil {
			return nil, nil, err
		}
	}
	ignored = append(ignored, boot.ignored...)
	for _, g := range boot.staticResources.secrets {
		if g.name == "" {
			ignored = append(ignored, FieldError{g.field, "has no name: nothing can refer to it"})
		}
	}
	w.reconcile(now)
	all := w.ignored()
	for url, list := range map[string][]staticResource{
		resource.ListenerType: boot.staticResources.listeners, resource.ClusterType: boot.staticResources.clusters, resource.SecretType: boot.staticResources.secrets,
	} {
		for _, g := range list {
			for _, field := range all[url][g.name] {
				ignored = append(ignored, FieldError{Field: g.field + "." + field})
			}
		}
	}
	for _, l := range boot.layers {
		if l.values != nil {
			for _, field := range l.values.Ignored() {
				ignored = append(ignored, FieldError{Field: field})
			}
		}
	}
	return w.snapshot(file), ignored, nil
}
