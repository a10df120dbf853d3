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

	errors  FieldErrors     // errors of the JSON; body is without the invalid members
	rawJSON json.RawMessage // JSON of a resource with errors; nil: no errors
}

// fieldErrors returns err as errors of the resource, without consequences of errors in the JSON.
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

	parsedClusters map[string]*resource.Cluster // clusters by name
	parsedSecrets  map[resource.SecretRef]*resource.Secret
}

// readStaticResources parses static_resources. It validates clusters and secrets; addTo decodes
// listeners. An error is of type FieldErrors.
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

// readResourceList reads the resources of a type, each into a new message.
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
			if g.errors[0].Field == g.field { // not an object, or it could not be decoded
				continue
			}
		}
		if l, ok := any(m).(*listenerv3.Listener); ok && l.GetName() == "" {
			l.Name = addressText(l.GetAddress()) // Envoy's files may omit the name
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

// addressText returns an address as text, "" if its type is unknown.
func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	return a.GetPipe().GetPath()
}

// targets returns the targets of the clusters that have an address, by name.
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

// bodies returns the serialized resources by type and name. x may be nil.
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

// addListenerErrors adds the errors of the static listeners to err, because addTo, which decodes
// listeners, does not run for an invalid bootstrap.
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
