package xds

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// staticResource is a resource of static_resources.
type staticResource struct {
	field string // "static_resources.listeners[0]"
	name  string
	body  []byte

	errors  FieldErrors     // as JSON; body is without that
	rawJSON json.RawMessage // of what is wrong; nil: nothing is
}

// fieldErrors is fieldErrorsOf the resource, without those that what is wrong as JSON has led to.
func (g *staticResource) fieldErrors(err error) FieldErrors {
	if err == nil {
		return nil
	}
	all := fieldErrorsOf(g.field, err)
	if g.errors == nil {
		return all
	}
	return dropFollowUpErrors(g.errors, all, fieldLookup(g.field, g.rawJSON))
}

// staticResources are the resources of static_resources. Immutable.
type staticResources struct {
	clusters, listeners, secrets []staticResource

	parsedClusters map[string]*resource.Cluster // of clusters, by name
	parsedSecrets  map[resource.SecretRef]*resource.Secret
}

// readStaticResources reads static_resources. What clusters and secrets say is checked;
// listeners are read by seed. The error is Problems.
func readStaticResources(data []byte) (*staticResources, error) {
	x := &staticResources{parsedClusters: map[string]*resource.Cluster{}, parsedSecrets: map[resource.SecretRef]*resource.Secret{}}
	all, err := splitObject("static_resources", data, "clusters", "listeners", "secrets")
	var wrong FieldErrors
	if err != nil {
		wrong = fieldErrorsOf("", err)
	}
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, fieldErrorsOf("", err)...)
		}
	}
	x.secrets, err = readResourceList("secrets", all, func() *tlsv3.Secret { return &tlsv3.Secret{} })
	note(err)
	for _, g := range x.secrets {
		secret, err := resource.ReadSecret(g.body, resource.Capabilities{})
		wrong = append(wrong, g.fieldErrors(err)...)
		x.parsedSecrets[resource.SecretRef{Name: g.name}] = secret
	}
	x.clusters, err = readResourceList("clusters", all, func() *clusterv3.Cluster { return &clusterv3.Cluster{} })
	note(err)
	for _, g := range x.clusters {
		c, err := resource.ReadCluster(g.body, resource.Capabilities{})
		wrong = append(wrong, g.fieldErrors(err)...)
		x.parsedClusters[g.name] = c
	}
	x.listeners, err = readResourceList("listeners", all, func() *listenerv3.Listener { return &listenerv3.Listener{} })
	note(err)
	return x, wrong.asError()
}

// readResourceList reads the resources of a kind, each into what message returns.
func readResourceList[M interface {
	proto.Message
	GetName() string
}](kind string, all map[string]json.RawMessage, message func() M) (list []staticResource, err error) {
	texts, err := splitList("static_resources."+kind, all[kind])
	if err != nil {
		return nil, err
	}
	var wrong FieldErrors
	names := map[string]bool{}
	for i, text := range texts {
		g := staticResource{field: fmt.Sprintf("static_resources.%s[%d]", kind, i)}
		m := message()
		if err := decodeField(g.field, text, m); err != nil {
			g.errors, g.rawJSON = fieldErrorsOf(g.field, err), text
			wrong = append(wrong, g.errors...)
			if g.errors[0].Field == g.field { // it is no object, or none that could be decoded
				continue
			}
		}
		if l, ok := any(m).(*listenerv3.Listener); ok && l.GetName() == "" {
			l.Name = addressText(l.GetAddress()) // files for Envoy may leave the name out
		}
		g.name = m.GetName()
		if g.body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			wrong = append(wrong, FieldError{g.field, err.Error()})
			continue
		}
		if names[g.name] && (g.name != "" || g.errors == nil) {
			wrong = append(wrong, FieldError{g.field, fmt.Sprintf("duplicate name %q", g.name)})
			continue
		}
		names[g.name] = true
		list = append(list, g)
	}
	return list, wrong.asError()
}

// addressText is an address as text, "" if it is none.
func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	return a.GetPipe().GetPath()
}

// targets are where the clusters are, by name, of those that have an address.
func (x *staticResources) targets() map[string]target {
	all := map[string]target{}
	for name, c := range x.parsedClusters {
		if c.EDSServiceName != "" {
			continue
		}
		made, ok := c.Resolve(nil, x.parsedSecrets)
		if !ok || len(made.Hosts) == 0 {
			continue
		}
		h := made.Hosts[0]
		all[name] = target{address: h.Address, unusedAddresses: len(made.Hosts) - 1, isUnix: isPath(h.Address), tls: made.TLS}
	}
	return all
}

// isPath reports whether an address is the path of a unix socket.
func isPath(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "./") || strings.HasPrefix(address, "@")
}

// addTo puts what x has in w, in the place of what before has, which is nil at the start.
// What is the same stays as it is. Listeners are read by k; targets and b's control plane
// are what they may refer to. The error is Problems: w is to be taken back then.
func (x *staticResources) addTo(w *state, before *staticResources, b *bootstrap, k resource.Capabilities, now time.Time) error {
	var wrong FieldErrors
	had := before.bodies()
	differs := func(kind string, g staticResource) bool {
		body, ok := had[kind+g.name]
		return !ok || body != string(g.body)
	}
	// A control plane may have given the name away: only then there is one, and before has not.
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

// removeFrom takes out of w what before has and x has not.
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

// bodies are the resources by kind and name; none of nil.
func (x *staticResources) bodies() map[string]string {
	all := map[string]string{}
	if x == nil {
		return all
	}
	for kind, list := range map[string][]staticResource{"secret/": x.secrets, "cluster/": x.clusters, "listener/": x.listeners} {
		for _, g := range list {
			all[kind+g.name] = string(g.body)
		}
	}
	return all
}

// checkReferences returns why a static resource cannot refer to what it does: to resources that
// are not secrets, if others, and to secrets.
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

// firstConflict is the field of the first resource that has a name of the file's, "" if none has.
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

// compileRoutes returns why tables cannot be put in force.
func compileRoutes(tables []*config.RouteTable) error {
	for _, t := range tables {
		if _, err := router.Compile(t); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return nil
}

// addListenerErrors adds what is wrong with listeners of static_resources to what else is wrong
// with a bootstrap: seed, which reads them, is not called of such a one.
func (b *bootstrap) addListenerErrors(err error, k resource.Capabilities) error {
	wrong := fieldErrorsOf("", err)
	for _, g := range b.staticResources.listeners {
		l, err := resource.ReadListener(g.body, k)
		if err == nil {
			err = compileRoutes(l.InlineTables)
		}
		wrong = append(wrong, g.fieldErrors(err)...)
	}
	return wrong
}

// MergeStatic returns what a file says with what its static_resources have, as far as that
// needs no control plane, and what of these has no effect, or is to be warned of. Nothing
// is bound, read from disk or asked for. An error is one of the bootstrap and, with
// errors.As, Problems if it has more than one field: the one that New would return, or the
// first call of Rebase, or that routes lead to clusters that there are not.
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
	if !boot.subscriptions.cds && !file.Dubbo.Enable { // else there may be others
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
