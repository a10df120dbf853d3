package xds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// The dump has the format of envoy.admin.v3.ConfigDump, so that tools for Envoy can read it. In
// addition to Envoy's fields, entries have "ignored": the fields of the resource without effect.

// DumpOptions select the contents of a dump.
type DumpOptions struct {
	Resource  string // a field of one of the messages, such as "dynamic_listeners"; "": everything
	Endpoints bool   // include endpoints
}

// dumpEntry is one resource of a dump. Its state is in the entry itself, or for a listener in a
// nested entry.
type dumpEntry map[string]any

// dumpMessage is one message of the dump.
type dumpMessage struct {
	message string // name without its package
	version string
	fields  []dumpField
}

type dumpField struct {
	name, entry string // entry is the message type of the entries
	entries     []dumpEntry
}

const adminPackage = "type.googleapis.com/envoy.admin.v3."

// Dump returns the list "configs" of a ConfigDump for encoding/json. Private keys and other secrets
// are redacted. It waits while a configuration is being applied. An error means that o is not
// valid.
func (s *Source) Dump(o DumpOptions) ([]any, error) {
	all := s.dumpMessages(o.Endpoints || o.Resource == "dynamic_endpoint_configs")
	if o.Resource == "" {
		out := []any{s.bootstrapDump()}
		for _, d := range all {
			m := map[string]any{"@type": adminPackage + d.message}
			if d.version != "" {
				m["version_info"] = d.version
			}
			for _, f := range d.fields {
				if len(f.entries) > 0 {
					m[f.name] = f.entries
				}
			}
			out = append(out, m)
		}
		return out, nil
	}
	known := []string{"bootstrap"}
	if o.Resource == known[0] {
		return []any{s.bootstrapDump()}, nil
	}
	for _, d := range all {
		for _, f := range d.fields {
			known = append(known, f.name)
			if f.name != o.Resource {
				continue
			}
			out := []any{}
			for _, e := range f.entries {
				e["@type"] = adminPackage + d.message + "." + f.entry
				out = append(out, e)
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("resource=%s is not valid, expected one of %s", o.Resource, strings.Join(known, ", "))
}

// dumpMessages returns the messages of a dump, without the bootstrap.
func (s *Source) dumpMessages(endpoints bool) []dumpMessage {
	h := s.statusSnapshot()
	active, warming := h.entries(resource.ClusterType, "cluster")
	routes, _ := h.entries(resource.RouteType, "route_config")
	calls, _ := h.entries(resource.DubboRouteType, "route_config")
	routes = append(routes, calls...)
	secrets, _ := h.entries(resource.SecretType, "secret")
	filters, _ := h.entries(resource.ExtensionType, "ecds_filter")
	all := []dumpMessage{
		{"ClustersConfigDump", h.versions[resource.ClusterType], []dumpField{
			{"static_clusters", "StaticCluster", h.staticEntries(resource.ClusterType, "cluster")}, {"dynamic_active_clusters", "DynamicCluster", active}, {"dynamic_warming_clusters", "DynamicCluster", warming},
		}},
		{"ListenersConfigDump", h.versions[resource.ListenerType], []dumpField{
			{"static_listeners", "StaticListener", h.staticEntries(resource.ListenerType, "listener")}, {"dynamic_listeners", "DynamicListener", h.listenerEntries()},
		}},
		{"RoutesConfigDump", "", []dumpField{{"dynamic_route_configs", "DynamicRouteConfig", routes}}},
		{"SecretsConfigDump", "", []dumpField{
			{"static_secrets", "StaticSecret", h.staticEntries(resource.SecretType, "secret")}, {"dynamic_active_secrets", "DynamicSecret", secrets},
		}},
		{"EcdsConfigDump", "", []dumpField{{"ecds_filters", "EcdsFilterConfig", filters}}},
	}
	if endpoints {
		hosts, _ := h.entries(resource.EndpointType, "endpoint_config")
		all = append(all, dumpMessage{"EndpointsConfigDump", "", []dumpField{{"dynamic_endpoint_configs", "DynamicEndpointConfig", hosts}}})
	}
	return all
}

// statusSnapshot is a copy of the resources and their status. Its resources are immutable.
type statusSnapshot struct {
	versions  map[string]string                    // by type
	resources map[string]map[string]ads.Resource   // by type and name
	status    map[string]map[string]ResourceStatus // by type and name
	ignored   map[string]map[string][]string       // ignored fields, by type and name
	// requested are the names that are subscribed, by type. The value is true if the control plane
	// has reported that the resource does not exist. A wildcard type has no entry.
	requested       map[string]map[string]bool
	warming         map[string]map[string]bool // resources that are not active yet, by type and name
	staticResources *bootstrap.StaticResources
}

func (s *Source) statusSnapshot() *statusSnapshot {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	h := &statusSnapshot{
		staticResources: s.state.Static(),
		versions:        map[string]string{}, resources: map[string]map[string]ads.Resource{}, status: map[string]map[string]ResourceStatus{},
		requested: map[string]map[string]bool{}, ignored: s.state.Ignored(), warming: map[string]map[string]bool{resource.ClusterType: {}, resource.ListenerType: {}},
	}
	for _, f := range s.channels {
		for _, url := range append(cachedTypes(), resource.SecretType) {
			if f.secretSource != (resource.SecretSource{}) && url != resource.SecretType {
				continue
			}
			if h.resources[url] == nil {
				h.resources[url] = map[string]ads.Resource{}
			}
			maps.Copy(h.resources[url], f.client.Resources(url))
			h.versions[url], _ = f.client.Version(url)
			h.addRequested(url, f.client)
		}
	}
	for _, w := range s.state.Warming() {
		h.warming[w.Type][w.Name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, all := range s.resourceStatus {
		h.status[url] = map[string]ResourceStatus{}
		for name, r := range all {
			_, held := h.resources[url][name]
			if held || r.RejectReason != "" {
				h.status[url][name] = *r
			}
		}
	}
	return h
}

// addRequested adds the subscription of a client to a type.
func (h *statusSnapshot) addRequested(url string, c *ads.Client) {
	all, names := c.Subscription(url)
	if all {
		return
	}
	if h.requested[url] == nil {
		h.requested[url] = make(map[string]bool, len(names))
	}
	for _, name := range names {
		h.requested[url][name] = c.DoesNotExist(url, name)
	}
}

// entries returns the resources of a type, sorted by name. Resources in warming are not active yet.
// field is the key of the resource in an entry.
func (h *statusSnapshot) entries(url, field string) (active, warming []dumpEntry) {
	for _, name := range slices.Sorted(maps.Keys(h.status[url])) {
		e := h.resourceEntry(url, name, field)
		if url == resource.SecretType {
			e["name"] = name
		}
		h.addErrorState(e, url, name)
		if h.warming[url][name] {
			warming = append(warming, e)
		} else {
			active = append(active, e)
		}
	}
	return active, warming
}

// listenerEntries returns the listeners, whose state is in a nested entry.
func (h *statusSnapshot) listenerEntries() (all []dumpEntry) {
	for _, name := range slices.Sorted(maps.Keys(h.status[resource.ListenerType])) {
		e := dumpEntry{"name": name}
		if _, held := h.resources[resource.ListenerType][name]; held {
			state := "active_state"
			if h.warming[resource.ListenerType][name] {
				state = "warming_state"
			}
			e[state] = h.resourceEntry(resource.ListenerType, name, "listener")
		}
		h.addErrorState(e, resource.ListenerType, name)
		all = append(all, e)
	}
	return all
}

// resourceEntry returns the entry of a resource with its version, update time and ignored fields.
func (h *statusSnapshot) resourceEntry(url, name, field string) dumpEntry {
	e := dumpEntry{}
	r := h.status[url][name]
	if r.Version != "" {
		e["version_info"] = r.Version
	}
	if !r.Updated.IsZero() {
		e["last_updated"] = r.Updated.UTC().Format(time.RFC3339Nano)
	}
	if held, ok := h.resources[url][name]; ok {
		e[field] = redactedResourceJSON(url, held.Body)
	}
	if list := h.ignored[url][name]; len(list) > 0 {
		e["ignored"] = list
	}
	return e
}

// addErrorState adds the reason why the last version of the resource was rejected, if it was.
func (h *statusSnapshot) addErrorState(e dumpEntry, url, name string) {
	if r := h.status[url][name]; r.RejectReason != "" {
		e["error_state"] = dumpEntry{"details": name + ": " + r.RejectReason, "last_update_attempt": r.RejectedAt.UTC().Format(time.RFC3339Nano)}
	}
}

// staticEntries returns the static resources of a type, in the order of the file.
func (h *statusSnapshot) staticEntries(url, field string) (all []dumpEntry) {
	for _, g := range h.staticResources.OfType(url) {
		e := dumpEntry{field: redactedResourceJSON(url, g.Body)}
		if url == resource.SecretType {
			e["name"] = g.Name
		}
		if list := h.ignored[url][g.Name]; len(list) > 0 {
			e["ignored"] = list
		}
		all = append(all, e)
	}
	return all
}

// bootstrapDump returns the bootstrap. The values of gRPC initial metadata are redacted, because
// they may be credentials.
func (s *Source) bootstrapDump() any {
	s.applyMu.Lock()
	given := s.state.Static()
	s.applyMu.Unlock()
	static := map[string]any{}
	for url, one := range map[string]struct {
		name    string
		message func() proto.Message
	}{
		resource.ClusterType:  {"clusters", func() proto.Message { return &clusterv3.Cluster{} }},
		resource.ListenerType: {"listeners", func() proto.Message { return &listenerv3.Listener{} }},
		resource.SecretType:   {"secrets", func() proto.Message { return &tlsv3.Secret{} }},
	} {
		list := []json.RawMessage{}
		for _, g := range given.OfType(url) {
			m := one.message()
			if proto.Unmarshal(g.Body, m) == nil { // always: body was marshaled from such a message
				list = append(list, redactedJSON(m))
			}
		}
		if len(list) > 0 || url == resource.ClusterType {
			static[one.name] = list
		}
	}
	dynamic := map[string]json.RawMessage{}
	maps.Copy(dynamic, s.boot.DynamicJSON)
	if s.boot.ADSConfig != nil {
		api, _ := proto.Clone(s.boot.ADSConfig).(*corev3.ApiConfigSource)
		for _, g := range api.GetGrpcServices() {
			for _, m := range g.GetInitialMetadata() {
				m.Value, m.RawValue = redacted, nil
			}
		}
		dynamic["ads_config"] = redactedJSON(api)
	}
	return map[string]any{
		"@type": adminPackage + "BootstrapConfigDump",
		"bootstrap": map[string]any{
			"node": redactedJSON(proto.Clone(s.boot.Node)), "static_resources": static, "dynamic_resources": dynamic,
		},
	}
}
