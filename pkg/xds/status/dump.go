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
	Resource  string // a list in one of the messages, such as "dynamic_listeners"; "": everything
	Endpoints bool   // include endpoints
}

// DumpObject is a JSON object of a dump: a message, or the entry of one resource.
type DumpObject map[string]any

// dumpMessage is one message of the dump.
type dumpMessage struct {
	message string // name without its package
	version string
	fields  []dumpField
}

type dumpField struct {
	name, entry string // entry is the message type of the entries
	entries     []DumpObject
}

const adminPackage = "type.googleapis.com/envoy.admin.v3."

// Dump returns the list "configs" of a ConfigDump for encoding/json. Private keys and other secrets
// are redacted. An error means that o is not valid.
func (s *Snapshot) Dump(o DumpOptions) ([]DumpObject, error) {
	messages := s.dumpMessages(o.Endpoints || o.Resource == "dynamic_endpoint_configs")
	if o.Resource == "" {
		out := []DumpObject{s.bootstrapDump()}
		for _, d := range messages {
			m := DumpObject{"@type": adminPackage + d.message}
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
	names := []string{"bootstrap"}
	if o.Resource == names[0] {
		return []DumpObject{s.bootstrapDump()}, nil
	}
	for _, d := range messages {
		for _, f := range d.fields {
			names = append(names, f.name)
			if f.name != o.Resource {
				continue
			}
			out := []DumpObject{}
			for _, e := range f.entries {
				e["@type"] = adminPackage + d.message + "." + f.entry
				out = append(out, e)
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("resource=%s is not valid, expected one of %s", o.Resource, strings.Join(names, ", "))
}

// dumpMessages returns the messages of a dump, without the bootstrap.
func (s *Snapshot) dumpMessages(endpoints bool) []dumpMessage {
	active, warming := s.entries(resource.ClusterType, "cluster")
	routes, _ := s.entries(resource.RouteType, "route_config")
	dubboRoutes, _ := s.entries(resource.DubboRouteType, "route_config")
	routes = append(routes, dubboRoutes...)
	secrets, _ := s.entries(resource.SecretType, "secret")
	filters, _ := s.entries(resource.ExtensionType, "ecds_filter")
	messages := []dumpMessage{
		{"ClustersConfigDump", s.version(resource.ClusterType), []dumpField{
			{"static_clusters", "StaticCluster", s.staticEntries(resource.ClusterType, "cluster")}, {"dynamic_active_clusters", "DynamicCluster", active}, {"dynamic_warming_clusters", "DynamicCluster", warming},
		}},
		{"ListenersConfigDump", s.version(resource.ListenerType), []dumpField{
			{"static_listeners", "StaticListener", s.staticEntries(resource.ListenerType, "listener")}, {"dynamic_listeners", "DynamicListener", s.listenerEntries()},
		}},
		{"RoutesConfigDump", "", []dumpField{{"dynamic_route_configs", "DynamicRouteConfig", routes}}},
		{"SecretsConfigDump", "", []dumpField{
			{"static_secrets", "StaticSecret", s.staticEntries(resource.SecretType, "secret")}, {"dynamic_active_secrets", "DynamicSecret", secrets},
		}},
		{"EcdsConfigDump", "", []dumpField{{"ecds_filters", "EcdsFilterConfig", filters}}},
	}
	if endpoints {
		hosts, _ := s.entries(resource.EndpointType, "endpoint_config")
		messages = append(messages, dumpMessage{"EndpointsConfigDump", "", []dumpField{{"dynamic_endpoint_configs", "DynamicEndpointConfig", hosts}}})
	}
	return messages
}

// entries returns the resources of a type, sorted by name. Resources in warming are not active yet.
// field is the key of the resource in an entry.
func (s *Snapshot) entries(url, field string) (active, warming []DumpObject) {
	for _, r := range s.received(url) {
		e := s.resourceEntry(url, r, field)
		if url == resource.SecretType {
			e["name"] = r.name
		}
		r.addErrorState(e)
		if s.warming[url][r.name] {
			warming = append(warming, e)
		} else {
			active = append(active, e)
		}
	}
	return active, warming
}

// listenerEntries returns the listeners, whose state is in a nested entry.
func (s *Snapshot) listenerEntries() (entries []DumpObject) {
	for _, r := range s.received(resource.ListenerType) {
		e := DumpObject{"name": r.name}
		if _, accepted := r.body(r.name); accepted {
			state := "active_state"
			if s.warming[resource.ListenerType][r.name] {
				state = "warming_state"
			}
			e[state] = s.resourceEntry(resource.ListenerType, r, "listener")
		}
		r.addErrorState(e)
		entries = append(entries, e)
	}
	return entries
}

// resourceEntry returns the entry of a resource with its version, update time and ignored fields.
func (s *Snapshot) resourceEntry(url string, r channelResource, field string) DumpObject {
	e := DumpObject{}
	history := r.history[r.name]
	if history.version != "" {
		e["version_info"] = history.version
	}
	if !history.updated.IsZero() {
		e["last_updated"] = history.updated.UTC().Format(time.RFC3339Nano)
	}
	if body, ok := r.body(r.name); ok {
		e[field] = redactedResourceJSON(url, body)
	}
	if list := s.ignoredFields(url, r); len(list) > 0 {
		e["ignored"] = list
	}
	return e
}

// addErrorState adds the reason why the last version of the resource was rejected, if it was.
func (r channelResource) addErrorState(e DumpObject) {
	if history := r.history[r.name]; history.rejectReason != "" {
		e["error_state"] = DumpObject{"details": r.name + ": " + history.rejectReason, "last_update_attempt": history.rejectedAt.UTC().Format(time.RFC3339Nano)}
	}
}

// staticEntries returns the static resources of a type, in the order of the file.
func (s *Snapshot) staticEntries(url, field string) (entries []DumpObject) {
	for _, r := range s.static.OfType(url) {
		e := DumpObject{field: redactedResourceJSON(url, r.Body)}
		if url == resource.SecretType {
			e["name"] = r.Name
		}
		if list := s.ignored[state.ResourceKey{Type: url, Name: r.Name}]; len(list) > 0 {
			e["ignored"] = list
		}
		entries = append(entries, e)
	}
	return entries
}

// bootstrapDump returns the bootstrap. The values of gRPC initial metadata are redacted, because
// they may be credentials.
func (s *Snapshot) bootstrapDump() DumpObject {
	static := map[string]any{}
	for url, section := range map[string]struct {
		name    string
		message func() proto.Message
	}{
		resource.ClusterType:  {"clusters", func() proto.Message { return &clusterv3.Cluster{} }},
		resource.ListenerType: {"listeners", func() proto.Message { return &listenerv3.Listener{} }},
		resource.SecretType:   {"secrets", func() proto.Message { return &tlsv3.Secret{} }},
	} {
		list := []json.RawMessage{}
		for _, r := range s.static.OfType(url) {
			m := section.message()
			if proto.Unmarshal(r.Body, m) == nil { // never fails: Body was marshaled from such a message
				list = append(list, redactedJSON(m))
			}
		}
		if len(list) > 0 || url == resource.ClusterType {
			static[section.name] = list
		}
	}
	dynamic := map[string]json.RawMessage{}
	maps.Copy(dynamic, s.boot.DynamicJSON)
	if s.boot.ADSConfig != nil {
		api, _ := proto.Clone(s.boot.ADSConfig).(*corev3.ApiConfigSource)
		for _, r := range api.GetGrpcServices() {
			for _, m := range r.GetInitialMetadata() {
				m.Value, m.RawValue = redacted, nil
			}
		}
		dynamic["ads_config"] = redactedJSON(api)
	}
	return DumpObject{
		"@type": adminPackage + "BootstrapConfigDump",
		"bootstrap": map[string]any{
			"node": redactedJSON(proto.Clone(s.boot.Node)), "static_resources": static, "dynamic_resources": dynamic,
		},
	}
}
