package status

import (
	"encoding/json"
	"fmt"
	"maps"
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
// are redacted. An error means that o is not valid.
func (h *Snapshot) Dump(o DumpOptions) ([]any, error) {
	all := h.dumpMessages(o.Endpoints || o.Resource == "dynamic_endpoint_configs")
	if o.Resource == "" {
		out := []any{h.bootstrapDump()}
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
		return []any{h.bootstrapDump()}, nil
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
func (h *Snapshot) dumpMessages(endpoints bool) []dumpMessage {
	active, warming := h.entries(resource.ClusterType, "cluster")
	routes, _ := h.entries(resource.RouteType, "route_config")
	calls, _ := h.entries(resource.DubboRouteType, "route_config")
	routes = append(routes, calls...)
	secrets, _ := h.entries(resource.SecretType, "secret")
	filters, _ := h.entries(resource.ExtensionType, "ecds_filter")
	all := []dumpMessage{
		{"ClustersConfigDump", h.version(resource.ClusterType), []dumpField{
			{"static_clusters", "StaticCluster", h.staticEntries(resource.ClusterType, "cluster")}, {"dynamic_active_clusters", "DynamicCluster", active}, {"dynamic_warming_clusters", "DynamicCluster", warming},
		}},
		{"ListenersConfigDump", h.version(resource.ListenerType), []dumpField{
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

// entries returns the resources of a type, sorted by name. Resources in warming are not active yet.
// field is the key of the resource in an entry.
func (h *Snapshot) entries(url, field string) (active, warming []dumpEntry) {
	for _, r := range h.received(url) {
		e := h.resourceEntry(url, r, field)
		if url == resource.SecretType {
			e["name"] = r.name
		}
		r.addErrorState(e)
		if h.warming[url][r.name] {
			warming = append(warming, e)
		} else {
			active = append(active, e)
		}
	}
	return active, warming
}

// listenerEntries returns the listeners, whose state is in a nested entry.
func (h *Snapshot) listenerEntries() (all []dumpEntry) {
	for _, r := range h.received(resource.ListenerType) {
		e := dumpEntry{"name": r.name}
		if _, accepted := r.body(r.name); accepted {
			state := "active_state"
			if h.warming[resource.ListenerType][r.name] {
				state = "warming_state"
			}
			e[state] = h.resourceEntry(resource.ListenerType, r, "listener")
		}
		r.addErrorState(e)
		all = append(all, e)
	}
	return all
}

// resourceEntry returns the entry of a resource with its version, update time and ignored fields.
func (h *Snapshot) resourceEntry(url string, r viewResource, field string) dumpEntry {
	e := dumpEntry{}
	past := r.history[r.name]
	if past.version != "" {
		e["version_info"] = past.version
	}
	if !past.updated.IsZero() {
		e["last_updated"] = past.updated.UTC().Format(time.RFC3339Nano)
	}
	if body, ok := r.body(r.name); ok {
		e[field] = redactedResourceJSON(url, body)
	}
	if list := h.ignoredFields(url, r); len(list) > 0 {
		e["ignored"] = list
	}
	return e
}

// addErrorState adds the reason why the last version of the resource was rejected, if it was.
func (r viewResource) addErrorState(e dumpEntry) {
	if past := r.history[r.name]; past.rejectReason != "" {
		e["error_state"] = dumpEntry{"details": r.name + ": " + past.rejectReason, "last_update_attempt": past.rejectedAt.UTC().Format(time.RFC3339Nano)}
	}
}

// staticEntries returns the static resources of a type, in the order of the file.
func (h *Snapshot) staticEntries(url, field string) (all []dumpEntry) {
	for _, g := range h.static.OfType(url) {
		e := dumpEntry{field: redactedResourceJSON(url, g.Body)}
		if url == resource.SecretType {
			e["name"] = g.Name
		}
		if list := h.ignored[state.ResourceKey{Type: url, Name: g.Name}]; len(list) > 0 {
			e["ignored"] = list
		}
		all = append(all, e)
	}
	return all
}

// bootstrapDump returns the bootstrap. The values of gRPC initial metadata are redacted, because
// they may be credentials.
func (h *Snapshot) bootstrapDump() any {
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
		for _, g := range h.static.OfType(url) {
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
	maps.Copy(dynamic, h.boot.DynamicJSON)
	if h.boot.ADSConfig != nil {
		api, _ := proto.Clone(h.boot.ADSConfig).(*corev3.ApiConfigSource)
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
			"node": redactedJSON(proto.Clone(h.boot.Node)), "static_resources": static, "dynamic_resources": dynamic,
		},
	}
}
