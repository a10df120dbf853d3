package xds

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

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

// ofType returns the resources of a type.
func (x *staticResources) ofType(url string) []staticResource {
	switch url {
	case resource.ClusterType:
		return x.clusters
	case resource.ListenerType:
		return x.listeners
	case resource.SecretType:
		return x.secrets
	}
	return nil
}
