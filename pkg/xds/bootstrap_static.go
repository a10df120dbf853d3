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

// given is a resource of static_resources.
type given struct {
	field string // "static_resources.listeners[0]"
	name  string
	body  []byte

	wrong Problems        // as JSON; body is without that
	text  json.RawMessage // of what is wrong; nil: nothing is
}

// judged is problemsOf the resource, without those that what is wrong as JSON has led to.
func (g *given) judged(err error) Problems {
	if err == nil {
		return nil
	}
	all := problemsOf(g.field, err)
	if g.wrong == nil {
		return all
	}
	return withoutEchoes(g.wrong, all, isGiven(g.field, g.text))
}

// fixtures are the resources of static_resources. Immutable.
type fixtures struct {
	clusters, listeners, secrets []given

	read  map[string]*resource.Cluster // of clusters, by name
	known map[resource.SecretRef]*resource.Secret
}

// readFixtures reads static_resources. What clusters and secrets say is checked;
// listeners are read by seed. The error is Problems.
func readFixtures(data []byte) (*fixtures, error) {
	x := &fixtures{read: map[string]*resource.Cluster{}, known: map[resource.SecretRef]*resource.Secret{}}
	all, err := members("static_resources", data, "clusters", "listeners", "secrets")
	var wrong Problems
	if err != nil {
		wrong = problemsOf("", err)
	}
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, problemsOf("", err)...)
		}
	}
	x.secrets, err = readGiven("secrets", all, func() *tlsv3.Secret { return &tlsv3.Secret{} })
	note(err)
	for _, g := range x.secrets {
		secret, err := resource.ReadSecret(g.body, resource.Kinds{})
		wrong = append(wrong, g.judged(err)...)
		x.known[resource.SecretRef{Name: g.name}] = secret
	}
	x.clusters, err = readGiven("clusters", all, func() *clusterv3.Cluster { return &clusterv3.Cluster{} })
	note(err)
	for _, g := range x.clusters {
		c, err := resource.ReadCluster(g.body, resource.Kinds{})
		wrong = append(wrong, g.judged(err)...)
		x.read[g.name] = c
	}
	x.listeners, err = readGiven("listeners", all, func() *listenerv3.Listener { return &listenerv3.Listener{} })
	note(err)
	return x, wrong.orNil()
}

// readGiven reads the resources of a kind, each into what message returns.
func readGiven[M interface {
	proto.Message
	GetName() string
}](kind string, all map[string]json.RawMessage, message func() M) (list []given, err error) {
	texts, err := elements("static_resources."+kind, all[kind])
	if err != nil {
		return nil, err
	}
	var wrong Problems
	names := map[string]bool{}
	for i, text := range texts {
		g := given{field: fmt.Sprintf("static_resources.%s[%d]", kind, i)}
		m := message()
		if err := read(g.field, text, m); err != nil {
			g.wrong, g.text = problemsOf(g.field, err), text
			wrong = append(wrong, g.wrong...)
			if g.wrong[0].Field == g.field { // it is no object, or none that could be decoded
				continue
			}
		}
		if l, ok := any(m).(*listenerv3.Listener); ok && l.GetName() == "" {
			l.Name = addressText(l.GetAddress()) // files for Envoy may leave the name out
		}
		g.name = m.GetName()
		if g.body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			wrong = append(wrong, Problem{g.field, err.Error()})
			continue
		}
		if names[g.name] && (g.name != "" || g.wrong == nil) {
			wrong = append(wrong, Problem{g.field, fmt.Sprintf("duplicate name %q", g.name)})
			continue
		}
		names[g.name] = true
		list = append(list, g)
	}
	return list, wrong.orNil()
}

// addressText is an address as text, "" if it is none.
func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	return a.GetPipe().GetPath()
}

// targets are where the clusters are, by name, of those that have an address.
func (x *fixtures) targets() map[string]target {
	all := map[string]target{}
	for name, c := range x.read {
		if c.Endpoints != "" {
			continue
		}
		made, ok := c.With(nil, x.known)
		if !ok || len(made.Hosts) == 0 {
			continue
		}
		h := made.Hosts[0]
		all[name] = target{address: h.Address, others: len(made.Hosts) - 1, unix: isPath(h.Address), tls: made.TLS}
	}
	return all
}

// isPath reports whether an address is the path of a unix socket.
func isPath(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "./") || strings.HasPrefix(address, "@")
}

// seed puts what x has in w, in the place of what before has, which is nil at the start.
// What is the same stays as it is. Listeners are read by k; targets and b's control plane
// are what they may refer to. The error is Problems: w is to be taken back then.
func (x *fixtures) seed(w *world, before *fixtures, b *bootstrap, k resource.Kinds, now time.Time) error {
	var wrong Problems
	had := before.bodies()
	differs := func(kind string, g given) bool {
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
	w.setFixed(x)
	for _, g := range x.secrets {
		if ref := (resource.SecretRef{Name: g.name}); differs("secret/", g) {
			w.setSecret(ref, x.known[ref])
		}
	}
	for _, g := range x.clusters {
		c := x.read[g.name]
		err := cmp.Or(taken("cluster/", g.name, w.clusters[g.name] != nil), b.refers(w, c.Endpoints != "", c.Secrets()))
		if err != nil {
			wrong = append(wrong, Problem{g.field, err.Error()})
		} else if differs("cluster/", g) {
			w.setCluster(g.name, c, now)
		}
	}
	for _, g := range x.listeners {
		l, err := resource.ReadListener(g.body, k)
		if err == nil {
			err = b.refers(w, len(l.Routes)+len(l.Slots) > 0, l.Secrets())
		}
		if err == nil {
			err = cmp.Or(compiles(l.Tables), taken("listener/", g.name, w.listeners[g.name] != nil))
		}
		if err != nil {
			wrong = append(wrong, g.judged(err)...)
		} else if differs("listener/", g) {
			w.setListener(g.name, l, now)
		}
	}
	x.retire(w, before)
	return wrong.orNil()
}

// retire takes out of w what before has and x has not.
func (x *fixtures) retire(w *world, before *fixtures) {
	if before == nil {
		return
	}
	for _, g := range before.clusters {
		if !w.fixed.clusters[g.name] {
			w.removeCluster(g.name)
		}
	}
	for _, g := range before.listeners {
		if !w.fixed.listeners[g.name] {
			w.removeListener(g.name)
		}
	}
}

// bodies are the resources by kind and name; none of nil.
func (x *fixtures) bodies() map[string]string {
	all := map[string]string{}
	if x == nil {
		return all
	}
	for kind, list := range map[string][]given{"secret/": x.secrets, "cluster/": x.clusters, "listener/": x.listeners} {
		for _, g := range list {
			all[kind+g.name] = string(g.body)
		}
	}
	return all
}

// refers returns why a static resource cannot refer to what it does: to resources that
// are not secrets, if others, and to secrets.
func (b *bootstrap) refers(w *world, others bool, secrets []resource.SecretRef) error {
	if others && b.control == "" {
		return errors.New("refers to resources of a control plane, but dynamic_resources.ads_config does not define one")
	}
	for _, r := range secrets {
		_, known := b.targets[r.From.Cluster]
		switch {
		case r.From.Cluster != "" && !known:
			return noSecretService(r)
		case r.From.Cluster == "" && b.control == "" && !w.fixed.secrets[r.Name]:
			return fmt.Errorf("secret %q is not defined in static_resources.secrets, and there is no control plane", r.Name)
		}
	}
	return nil
}

func noSecretService(r resource.SecretRef) error {
	return fmt.Errorf("secret %q: envoy_grpc.cluster_name: %q is not a cluster of static_resources with an address", r.Name, r.From.Cluster)
}

// shared is the field of the first resource that has a name of the file's, "" if none has.
func (x *fixtures) shared(file *config.Snapshot) string {
	named := func(all []given, name string) string {
		at := slices.IndexFunc(all, func(g given) bool { return g.name == name })
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

// compiles returns why tables cannot be put in force.
func compiles(tables []*config.RouteTable) error {
	for _, t := range tables {
		if _, err := router.Compile(t); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return nil
}

// withListeners adds what is wrong with listeners of static_resources to what else is wrong
// with a bootstrap: seed, which reads them, is not called of such a one.
func (b *bootstrap) withListeners(err error, k resource.Kinds) error {
	wrong := problemsOf("", err)
	for _, g := range b.fixtures.listeners {
		l, err := resource.ReadListener(g.body, k)
		if err == nil {
			err = compiles(l.Tables)
		}
		wrong = append(wrong, g.judged(err)...)
	}
	return wrong
}

// Static returns what a file says with what its static_resources have, as far as that
// needs no control plane, and what of these has no effect, or is to be warned of. Nothing
// is bound, read from disk or asked for. An error is one of the bootstrap and, with
// errors.As, Problems if it has more than one field: the one that New would return, or the
// first call of Rebase, or that routes lead to clusters that there are not.
func Static(file *config.Snapshot, k resource.Kinds) (whole *config.Snapshot, ignored Problems, err error) {
	boot, err := readBootstrap(file.Bootstrap)
	w := newWorld()
	w.lazy = newLazy(file.Bootstrap.Lazy)
	w.runtime = runtime{layers: boot.layers}.settled()
	k.Node, k.Runtime = resource.NodeOf(boot.node), w.runtime.now
	if err != nil {
		return nil, nil, boot.withListeners(err, k)
	}
	now := time.Now()
	if err := boot.fixtures.seed(w, nil, boot, k, now); err != nil {
		return nil, nil, err
	}
	if err := w.clash(file); err != nil {
		return nil, nil, problemsOf(boot.fixtures.shared(file), err)
	}
	if !boot.dynamic.clusters && !file.Dubbo.Enable { // else there may be others
		if ignored, err = boot.fixtures.checkClusters(file); err != nil {
			return nil, nil, err
		}
	}
	ignored = append(ignored, boot.ignored...)
	for _, g := range boot.fixtures.secrets {
		if g.name == "" {
			ignored = append(ignored, Problem{g.field, "has no name: nothing can refer to it"})
		}
	}
	w.settle(now)
	all := w.ignored()
	for url, list := range map[string][]given{
		resource.ListenerType: boot.fixtures.listeners, resource.ClusterType: boot.fixtures.clusters, resource.SecretType: boot.fixtures.secrets,
	} {
		for _, g := range list {
			for _, field := range all[url][g.name] {
				ignored = append(ignored, Problem{Field: g.field + "." + field})
			}
		}
	}
	for _, l := range boot.layers {
		if l.said != nil {
			for _, field := range l.said.Ignored() {
				ignored = append(ignored, Problem{Field: field})
			}
		}
	}
	return w.snapshot(file), ignored, nil
}
