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

	"github.com/weft-proxy/weft/internal/unixaddr"
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

// FieldErrors returns err as errors of the resource. Body lacks the invalid members of the JSON, so
// FieldErrors omits errors that are only a consequence of that.
func (r *StaticResource) FieldErrors(err error) FieldErrors {
	if err == nil {
		return nil
	}
	errs := fieldErrorsOf(r.Field, err)
	if r.errors == nil {
		return errs
	}
	return dropFollowUpErrors(r.errors, errs, fieldLookup(r.Field, r.rawJSON))
}

// StaticResources are the resources of static_resources. Immutable.
type StaticResources struct {
	Clusters, Listeners, Secrets []StaticResource

	ParsedClusters map[string]*resource.Cluster // clusters by name
	ParsedSecrets  map[resource.SecretRef]*resource.Secret
}

// ReadStatic parses static_resources. It validates clusters and secrets, but not listeners, which
// state.State decodes. An error is of type FieldErrors.
func ReadStatic(data []byte, caps resource.Capabilities) (*StaticResources, error) {
	caps = resource.Capabilities{CheckRules: caps.CheckRules} // the others concern listeners
	s := &StaticResources{ParsedClusters: map[string]*resource.Cluster{}, ParsedSecrets: map[resource.SecretRef]*resource.Secret{}}
	members, err := splitObject("static_resources", data, "clusters", "listeners", "secrets")
	var errs FieldErrors
	if err != nil {
		errs = fieldErrorsOf("", err)
	}
	addError := func(err error) {
		if err != nil {
			errs = append(errs, fieldErrorsOf("", err)...)
		}
	}
	s.Secrets, err = readResourceList("secrets", members, func() *tlsv3.Secret { return &tlsv3.Secret{} })
	addError(err)
	for _, r := range s.Secrets {
		secret, err := resource.ReadSecret(r.Body, caps)
		errs = append(errs, r.FieldErrors(err)...)
		s.ParsedSecrets[resource.SecretRef{Name: r.Name}] = secret
	}
	s.Clusters, err = readResourceList("clusters", members, func() *clusterv3.Cluster { return &clusterv3.Cluster{} })
	addError(err)
	for _, r := range s.Clusters {
		c, err := resource.ReadCluster(r.Body, caps)
		errs = append(errs, r.FieldErrors(err)...)
		s.ParsedClusters[r.Name] = c
	}
	s.Listeners, err = readResourceList("listeners", members, func() *listenerv3.Listener { return &listenerv3.Listener{} })
	addError(err)
	return s, errs.asError()
}

// readResourceList reads the resources of a type, each into a new message.
func readResourceList[M interface {
	proto.Message
	GetName() string
}](key string, members map[string]json.RawMessage, newMessage func() M) (list []StaticResource, err error) {
	texts, err := splitList("static_resources."+key, members[key])
	if err != nil {
		return nil, err
	}
	var errs FieldErrors
	names := map[string]bool{}
	for i, text := range texts {
		if len(errs) >= maxErrors {
			errs = append(errs, FieldError{"static_resources." + key, fmt.Sprintf("has more than %d errors", maxErrors)})
			break
		}
		r := StaticResource{Field: fmt.Sprintf("static_resources.%s[%d]", key, i)}
		m := newMessage()
		if err := decodeField(r.Field, text, m); err != nil {
			r.errors, r.rawJSON = fieldErrorsOf(r.Field, err), text
			errs = append(errs, r.errors...)
			if r.errors[0].Field == r.Field { // not an object, or it could not be decoded
				continue
			}
		}
		if l, ok := any(m).(*listenerv3.Listener); ok && l.GetName() == "" {
			l.Name = addressText(l.GetAddress()) // Envoy's files may omit the name
		}
		r.Name = m.GetName()
		if r.Body, err = (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil {
			errs = append(errs, FieldError{r.Field, err.Error()})
			continue
		}
		if names[r.Name] && (r.Name != "" || r.errors == nil) {
			errs = append(errs, FieldError{r.Field, fmt.Sprintf("duplicate name %q", r.Name)})
			continue
		}
		names[r.Name] = true
		list = append(list, r)
	}
	return list, errs.asError()
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

// Targets returns a target for each cluster that has an address and needs no secrets other than
// static ones. The keys are the names of the clusters.
func (s *StaticResources) Targets() map[string]Target {
	targets := map[string]Target{}
	for name, c := range s.ParsedClusters {
		if c.EDSServiceName != "" {
			continue
		}
		resolved, ok := c.Resolve(nil, s.ParsedSecrets)
		if !ok || len(resolved.Hosts) == 0 {
			continue
		}
		h := resolved.Hosts[0]
		targets[name] = Target{Address: h.Address, unusedAddresses: len(resolved.Hosts) - 1, IsUnix: unixaddr.Is(h.Address), TLS: resolved.TLS}
	}
	return targets
}

// Bodies returns the serialized resources. The keys are "cluster/", "listener/" or "secret/" and
// the name.
func (s *StaticResources) Bodies() map[string]string {
	bodies := map[string]string{}
	for prefix, list := range map[string][]StaticResource{"secret/": s.Secrets, "cluster/": s.Clusters, "listener/": s.Listeners} {
		for _, r := range list {
			bodies[prefix+r.Name] = string(r.Body)
		}
	}
	return bodies
}

// listenerErrors returns the errors of the listeners, decoded with caps. Read calls it if the
// bootstrap has other errors, because then no State decodes the listeners.
func (s *StaticResources) listenerErrors(caps resource.Capabilities) (errs FieldErrors) {
	for _, r := range s.Listeners {
		l, err := resource.ReadListener(r.Body, caps)
		if err == nil {
			err = CompileRoutes(l.InlineTables)
		}
		errs = append(errs, r.FieldErrors(err)...)
	}
	return errs
}

// OfType returns the resources of a type.
func (s *StaticResources) OfType(url string) []StaticResource {
	switch url {
	case resource.ClusterType:
		return s.Clusters
	case resource.ListenerType:
		return s.Listeners
	case resource.SecretType:
		return s.Secrets
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
