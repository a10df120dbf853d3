package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// StaticResource is a resource of static_resources.
type StaticResource struct {
	Field string // "static_resources.listeners[0]"
	Name  string
	Body  []byte // serialized

	errors  FieldErrors     // errors of the JSON; Body is without the invalid members
	rawJSON json.RawMessage // JSON of a resource with errors; nil: no errors
}

// FieldErrors returns err as errors of the resource, without consequences of errors in the JSON.
func (g *StaticResource) FieldErrors(err error) FieldErrors {
	if err == nil {
		return nil
	}
	all := fieldErrorsOf(g.Field, err)
	if g.errors == nil {
		return all
	}
	return dropFollowUpErrors(g.errors, all, fieldLookup(g.Field, g.rawJSON))
}

// StaticResources are the resources of static_resources. Immutable.
type StaticResources struct {
	Clusters, Listeners, Secrets []StaticResource

	ParsedClusters map[string]*resource.Cluster // clusters by name
	ParsedSecrets  map[resource.SecretRef]*resource.Secret
}

// ReadStatic parses static_resources. It validates clusters and secrets; the State decodes
// listeners. An error is of type FieldErrors.
func ReadStatic(data []byte) (*StaticResources, error) {
	x := &StaticResources{ParsedClusters: map[string]*resource.Cluster{}, ParsedSecrets: map[resource.SecretRef]*resource.Secret{}}
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
	x.Secrets, err = readResourceList("secrets", all, func() *tlsv3.Secret { return &tlsv3.Secret{} })
	note(err)
	for _, g := range x.Secrets {
		secret, err := resource.ReadSecret(g.Body, resource.Capabilities{})
		wrong = append(wrong, g.FieldErrors(err)...)
		x.ParsedSecrets[resource.SecretRef{Name: g.Name}] = secret
	}
	x.Clusters, err = readResourceList("clusters", all, func() *clusterv3.Cluster { return &clusterv3.Cluster{} })
	note(err)
	for _, g := range x.Clusters {
		c, err := resource.ReadCluster(g.Body, resource.Capabilities{})
		wrong = append(wrong, g.FieldErrors(err)...)
		x.ParsedClusters[g.Name] = c
	}
	x.Listeners, err = readResourceList("listeners", all, func() *listenerv3.Listener { return &listenerv3.Listener{} })
	note(err)
	return x, wrong.asError()
}

// readResourceList reads the resources of a type, each into a new message.
func readResourceList[M interface {
	proto.Message
	GetName() string
}](kind string, all map[string]json.RawMessage, message func() M) (list []StaticResource, err error) {
	texts, err := splitList("static_resources."+kind, all[kind])
	if err != nil {
		return nil, err
	}
	var wrong FieldErrors
	names := map[string]bool{}
	for i, text := range texts {
		g := StaticResource{Field: fmt.Sprintf("static_resources.%s[%d]", kind, i)}
		m := message()
		if err := decodeField(g.Field, text, m); err != nil {
			g.errors, g.rawJSON = fieldErrorsOf(g.Field, err), text
			wrong = append(wrong, g.errors...)
			if g.errors[0].Field == g.Field { // not an object, or it could not be decoded
				continue
			}
		}
		if l, ok := any(m).(*listenerv3.Listener); ok && l.GetName() == "" {
			l.Name = addressText(l.GetAddress()) // Envoy's files may omit the name
		}
		g.Name = m.GetName()
		if g.Body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			wrong = append(wrong, FieldError{g.Field, err.Error()})
			continue
		}
		if names[g.Name] && (g.Name != "" || g.errors == nil) {
			wrong = append(wrong, FieldError{g.Field, fmt.Sprintf("duplicate name %q", g.Name)})
			continue
		}
		names[g.Name] = true
		list = append(list, g)
	}
	return list, wrong.asError()
}

// addressText returns an address as text, "" if its type is unknown.
func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		host := s.GetAddress()
		if strings.Contains(host, ":") { // IPv6
			host = "[" + host + "]"
		}
		return host + ":" + strconv.FormatUint(uint64(s.GetPortValue()), 10)
	}
	return a.GetPipe().GetPath()
}

// Targets returns the targets of the clusters that have an address, by name.
func (x *StaticResources) Targets() map[string]Target {
	all := map[string]Target{}
	for name, c := range x.ParsedClusters {
		if c.EDSServiceName != "" {
			continue
		}
		made, ok := c.Resolve(nil, x.ParsedSecrets)
		if !ok || len(made.Hosts) == 0 {
			continue
		}
		h := made.Hosts[0]
		all[name] = Target{Address: h.Address, unusedAddresses: len(made.Hosts) - 1, IsUnix: isPath(h.Address), TLS: made.TLS}
	}
	return all
}

// isPath reports whether an address is the path of a unix socket.
func isPath(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "./") || strings.HasPrefix(address, "@")
}

// Bodies returns the serialized resources by type and name.
func (x *StaticResources) Bodies() map[string]string {
	all := map[string]string{}
	for kind, list := range map[string][]StaticResource{"secret/": x.Secrets, "cluster/": x.Clusters, "listener/": x.Listeners} {
		for _, g := range list {
			all[kind+g.Name] = string(g.Body)
		}
	}
	return all
}

// listenerErrors returns the errors of the listeners, decoded with k. It is for a bootstrap with
// other errors, whose listeners no state decodes.
func (x *StaticResources) listenerErrors(k resource.Capabilities) (wrong FieldErrors) {
	for _, g := range x.Listeners {
		l, err := resource.ReadListener(g.Body, k)
		if err == nil {
			err = CompileRoutes(l.InlineTables)
		}
		wrong = append(wrong, g.FieldErrors(err)...)
	}
	return wrong
}

// OfType returns the resources of a type.
func (x *StaticResources) OfType(url string) []StaticResource {
	switch url {
	case resource.ClusterType:
		return x.Clusters
	case resource.ListenerType:
		return x.Listeners
	case resource.SecretType:
		return x.Secrets
	}
	return nil
}

// CompileRoutes returns an error if a table cannot be compiled.
func CompileRoutes(tables []*config.RouteTable) error {
	for _, t := range tables {
		if _, err := router.Compile(t); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return nil
}
