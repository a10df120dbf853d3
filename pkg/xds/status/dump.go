package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// The dump has the format of envoy.admin.v3.ConfigDump, so that tools for Envoy can read it. In
// addition to Envoy's fields, entries have "ignored": the fields of the resource that have no
// effect.
//
// The types below are the messages of ConfigDump with the member "ignored", which Envoy's Go types
// lack. The members are in alphabetical order.

// DumpOptions select the contents of a dump.
type DumpOptions struct {
	Resource  string // "bootstrap", or a list in one of the messages, such as "dynamic_listeners"; "": everything
	Endpoints bool   // include endpoints
}

// bootstrapMessage is a BootstrapConfigDump.
type bootstrapMessage struct {
	Type      string        `json:"@type"`
	Bootstrap bootstrapDump `json:"bootstrap"`
}

// bootstrapDump has the parts of envoy.config.bootstrap.v3.Bootstrap that a dump contains.
type bootstrapDump struct {
	Dynamic struct {
		ADS json.RawMessage `json:"ads_config,omitempty"`
		CDS json.RawMessage `json:"cds_config,omitempty"`
		LDS json.RawMessage `json:"lds_config,omitempty"`
	} `json:"dynamic_resources"`
	Node   json.RawMessage `json:"node"`
	Static struct {
		Clusters  []json.RawMessage `json:"clusters"`
		Listeners []json.RawMessage `json:"listeners,omitempty"`
		Secrets   []json.RawMessage `json:"secrets,omitempty"`
	} `json:"static_resources"`
}

// clustersMessage is a ClustersConfigDump.
type clustersMessage struct {
	Type    string      `json:"@type"`
	Active  []dumpEntry `json:"dynamic_active_clusters,omitempty"`
	Warming []dumpEntry `json:"dynamic_warming_clusters,omitempty"`
	Static  []dumpEntry `json:"static_clusters,omitempty"`
	Version string      `json:"version_info,omitempty"`
}

// listenersMessage is a ListenersConfigDump.
type listenersMessage struct {
	Type    string      `json:"@type"`
	Dynamic []dumpEntry `json:"dynamic_listeners,omitempty"`
	Static  []dumpEntry `json:"static_listeners,omitempty"`
	Version string      `json:"version_info,omitempty"`
}

// routesMessage is a RoutesConfigDump.
type routesMessage struct {
	Type    string      `json:"@type"`
	Dynamic []dumpEntry `json:"dynamic_route_configs,omitempty"`
}

// secretsMessage is a SecretsConfigDump.
type secretsMessage struct {
	Type   string      `json:"@type"`
	Active []dumpEntry `json:"dynamic_active_secrets,omitempty"`
	Static []dumpEntry `json:"static_secrets,omitempty"`
}

// filtersMessage is an EcdsConfigDump.
type filtersMessage struct {
	Type    string      `json:"@type"`
	Filters []dumpEntry `json:"ecds_filters,omitempty"`
}

// endpointsMessage is an EndpointsConfigDump.
type endpointsMessage struct {
	Type    string      `json:"@type"`
	Dynamic []dumpEntry `json:"dynamic_endpoint_configs,omitempty"`
}

// dumpEntry is the entry of one resource in one of the messages, such as a DynamicCluster, or the
// active or warming state of a listener.
type dumpEntry struct {
	Type         string          `json:"@type,omitempty"` // "": the entry is in a message
	ActiveState  *dumpEntry      `json:"active_state,omitempty"`
	Cluster      json.RawMessage `json:"cluster,omitempty"`
	Filter       json.RawMessage `json:"ecds_filter,omitempty"`
	Endpoints    json.RawMessage `json:"endpoint_config,omitempty"`
	ErrorState   *errorState     `json:"error_state,omitempty"`
	Ignored      []string        `json:"ignored,omitempty"`
	LastUpdated  string          `json:"last_updated,omitempty"`
	Listener     json.RawMessage `json:"listener,omitempty"`
	Name         string          `json:"name,omitempty"` // of a listener or secret
	Routes       json.RawMessage `json:"route_config,omitempty"`
	Secret       json.RawMessage `json:"secret,omitempty"`
	Version      string          `json:"version_info,omitempty"`
	WarmingState *dumpEntry      `json:"warming_state,omitempty"`
}

// errorState is an UpdateFailureState: why the last version of a resource was rejected.
type errorState struct {
	Details           string `json:"details"`
	LastUpdateAttempt string `json:"last_update_attempt"`
}

const adminPackage = "type.googleapis.com/envoy.admin.v3."

// Dump returns the list "configs" of a ConfigDump. Private keys and other secrets are redacted. An
// error means that o is not valid.
func (s *Snapshot) Dump(o DumpOptions) ([]json.RawMessage, error) {
	const bootstrapResource = "bootstrap"
	if o.Resource == bootstrapResource {
		return marshalAll(s.bootstrapMessage())
	}
	clusters, listeners, routes, secrets, filters := s.clustersMessage(), s.listenersMessage(), s.routesMessage(), s.secretsMessage(), s.filtersMessage()
	var endpoints endpointsMessage
	const endpointsResource = "dynamic_endpoint_configs"
	if o.Endpoints || o.Resource == endpointsResource {
		endpoints = s.endpointsMessage()
	}
	if o.Resource == "" {
		messages := []any{s.bootstrapMessage(), clusters, listeners, routes, secrets, filters}
		if o.Endpoints {
			messages = append(messages, endpoints)
		}
		return marshalAll(messages...)
	}
	names := []string{bootstrapResource}
	for _, list := range []struct {
		name, entryType string
		entries         []dumpEntry
	}{
		{"static_clusters", "ClustersConfigDump.StaticCluster", clusters.Static},
		{"dynamic_active_clusters", "ClustersConfigDump.DynamicCluster", clusters.Active},
		{"dynamic_warming_clusters", "ClustersConfigDump.DynamicCluster", clusters.Warming},
		{"static_listeners", "ListenersConfigDump.StaticListener", listeners.Static},
		{"dynamic_listeners", "ListenersConfigDump.DynamicListener", listeners.Dynamic},
		{"dynamic_route_configs", "RoutesConfigDump.DynamicRouteConfig", routes.Dynamic},
		{"static_secrets", "SecretsConfigDump.StaticSecret", secrets.Static},
		{"dynamic_active_secrets", "SecretsConfigDump.DynamicSecret", secrets.Active},
		{"ecds_filters", "EcdsConfigDump.EcdsFilterConfig", filters.Filters},
		{endpointsResource, "EndpointsConfigDump.DynamicEndpointConfig", endpoints.Dynamic},
	} {
		names = append(names, list.name)
		if list.name != o.Resource {
			continue
		}
		entries := make([]any, len(list.entries))
		for i, e := range list.entries {
			e.Type = adminPackage + list.entryType
			entries[i] = e
		}
		return marshalAll(entries...)
	}
	return nil, fmt.Errorf("resource=%s is not valid, expected one of %s", o.Resource, strings.Join(names, ", "))
}

// marshalAll returns the JSON of each message.
func marshalAll(messages ...any) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		var err error
		if out[i], err = json.Marshal(m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Snapshot) clustersMessage() clustersMessage {
	m := clustersMessage{Type: adminPackage + "ClustersConfigDump", Version: s.version(resource.ClusterType)}
	m.Static = s.staticEntries(resource.ClusterType)
	m.Active, m.Warming = s.entries(resource.ClusterType)
	return m
}

func (s *Snapshot) listenersMessage() listenersMessage {
	return listenersMessage{
		Type: adminPackage + "ListenersConfigDump", Version: s.version(resource.ListenerType),
		Static: s.staticEntries(resource.ListenerType), Dynamic: s.listenerEntries(),
	}
}

func (s *Snapshot) routesMessage() routesMessage {
	routes, _ := s.entries(resource.RouteType)
	dubboRoutes, _ := s.entries(resource.DubboRouteType)
	return routesMessage{adminPackage + "RoutesConfigDump", append(routes, dubboRoutes...)}
}

func (s *Snapshot) secretsMessage() secretsMessage {
	active, _ := s.entries(resource.SecretType)
	return secretsMessage{adminPackage + "SecretsConfigDump", active, s.staticEntries(resource.SecretType)}
}

func (s *Snapshot) filtersMessage() filtersMessage {
	filters, _ := s.entries(resource.ExtensionType)
	return filtersMessage{adminPackage + "EcdsConfigDump", filters}
}

func (s *Snapshot) endpointsMessage() endpointsMessage {
	hosts, _ := s.entries(resource.EndpointType)
	return endpointsMessage{adminPackage + "EndpointsConfigDump", hosts}
}

// entries returns the resources of a type, sorted by name. Resources in warming are not active yet.
func (s *Snapshot) entries(url string) (active, warming []dumpEntry) {
	for _, r := range s.received(url) {
		e := s.resourceEntry(url, r)
		if url == resource.SecretType {
			e.Name = r.name
		}
		e.ErrorState = r.errorState()
		if s.warming[url][r.name] {
			warming = append(warming, e)
		} else {
			active = append(active, e)
		}
	}
	return active, warming
}

// listenerEntries returns the listeners, whose state is in a nested entry.
func (s *Snapshot) listenerEntries() (entries []dumpEntry) {
	for _, r := range s.received(resource.ListenerType) {
		e := dumpEntry{Name: r.name, ErrorState: r.errorState()}
		if _, accepted := r.body(r.name); accepted {
			current := s.resourceEntry(resource.ListenerType, r)
			if s.warming[resource.ListenerType][r.name] {
				e.WarmingState = &current
			} else {
				e.ActiveState = &current
			}
		}
		entries = append(entries, e)
	}
	return entries
}

// resourceEntry returns the entry of a resource with its version, update time and ignored fields.
func (s *Snapshot) resourceEntry(url string, r channelResource) dumpEntry {
	history := r.history[r.name]
	e := dumpEntry{Version: history.version, Ignored: s.ignoredFields(url, r)}
	if !history.updated.IsZero() {
		e.LastUpdated = formatTime(history.updated)
	}
	if body, ok := r.body(r.name); ok {
		e.setResource(url, body)
	}
	return e
}

// setResource sets the member for resources of type url to body as redacted JSON.
func (e *dumpEntry) setResource(url string, body []byte) {
	text := redactedResourceJSON(url, body)
	switch url {
	case resource.ClusterType:
		e.Cluster = text
	case resource.ExtensionType:
		e.Filter = text
	case resource.EndpointType:
		e.Endpoints = text
	case resource.ListenerType:
		e.Listener = text
	case resource.RouteType, resource.DubboRouteType:
		e.Routes = text
	case resource.SecretType:
		e.Secret = text
	}
}

// errorState returns why the last version of the resource was rejected, or nil if it was accepted.
func (r channelResource) errorState() *errorState {
	history := r.history[r.name]
	if history.rejectReason == "" {
		return nil
	}
	return &errorState{r.name + ": " + history.rejectReason, formatTime(history.rejectedAt)}
}

// formatTime returns t in the JSON form of a Timestamp.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// staticEntries returns the static resources of a type, in the order of the file.
func (s *Snapshot) staticEntries(url string) (entries []dumpEntry) {
	for _, r := range s.static.OfType(url) {
		e := dumpEntry{Ignored: s.ignored[state.ResourceKey{Type: url, Name: r.Name}]}
		if url == resource.SecretType {
			e.Name = r.Name
		}
		e.setResource(url, r.Body)
		entries = append(entries, e)
	}
	return entries
}

// bootstrapMessage returns the bootstrap. The values of gRPC initial metadata are redacted, because
// they may be credentials.
func (s *Snapshot) bootstrapMessage() bootstrapMessage {
	m := bootstrapMessage{Type: adminPackage + "BootstrapConfigDump"}
	b := &m.Bootstrap
	b.Node = redactedJSON(proto.Clone(s.boot.Node))
	b.Static.Clusters = s.staticJSON(resource.ClusterType, func() proto.Message { return &clusterv3.Cluster{} })
	b.Static.Listeners = s.staticJSON(resource.ListenerType, func() proto.Message { return &listenerv3.Listener{} })
	b.Static.Secrets = s.staticJSON(resource.SecretType, func() proto.Message { return &tlsv3.Secret{} })
	b.Dynamic.CDS, b.Dynamic.LDS = s.boot.DynamicJSON["cds_config"], s.boot.DynamicJSON["lds_config"]
	if s.boot.ADSConfig != nil {
		api, _ := proto.Clone(s.boot.ADSConfig).(*corev3.ApiConfigSource)
		for _, r := range api.GetGrpcServices() {
			for _, m := range r.GetInitialMetadata() {
				m.Value, m.RawValue = redacted, nil
			}
		}
		b.Dynamic.ADS = redactedJSON(api)
	}
	return m
}

// staticJSON returns the static resources of a type without their secrets. It reads each resource
// into a new message, because the bootstrap has no Any around a resource.
func (s *Snapshot) staticJSON(url string, newMessage func() proto.Message) []json.RawMessage {
	list := []json.RawMessage{}
	for _, r := range s.static.OfType(url) {
		m := newMessage()
		if proto.Unmarshal(r.Body, m) == nil { // never fails: Body was marshaled from such a message
			list = append(list, redactedJSON(m))
		}
	}
	return list
}
