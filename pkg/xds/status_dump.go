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
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// The configuration in the shape of envoy.admin.v3.ConfigDump, so that tools which read
// that of Envoy read this. Beside Envoy's fields entries have "ignored": the fields of
// the resource that have no effect.

// DumpOptions say what of the configuration is wanted.
type DumpOptions struct {
	Resource  string // a field of one of the dumps, as "dynamic_listeners"; "": all dumps
	Endpoints bool   // endpoints, too
}

// dumpEntry is a resource of a dump: with its state in itself, or, of a listener, below.
type dumpEntry map[string]any

// dumped is one message of the dump: its lists of entries, by field.
type dumped struct {
	message string // without its package
	version string
	fields  []dumpedField
}

type dumpedField struct {
	name, entry string // entry is the message that an entry is
	entries     []dumpEntry
}

const adminPackage = "type.googleapis.com/envoy.admin.v3."

// Dump returns what encoding/json writes as the list "configs" of a ConfigDump. Keys and
// other secrets are redacted. It waits while a configuration is put in force. An error
// is one of o.
func (s *Source) Dump(o DumpOptions) ([]any, error) {
	all := s.dumps(o.Endpoints || o.Resource == "dynamic_endpoint_configs")
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

// dumps are the messages of a dump.
func (s *Source) dumps(endpoints bool) []dumped {
	h := s.holding()
	active, warming := h.entries(resource.ClusterType, "cluster")
	routes, _ := h.entries(resource.RouteType, "route_config")
	calls, _ := h.entries(resource.DubboRouteType, "route_config")
	routes = append(routes, calls...)
	secrets, _ := h.entries(resource.SecretType, "secret")
	filters, _ := h.entries(resource.ExtensionType, "ecds_filter")
	all := []dumped{
		{"ClustersConfigDump", h.versions[resource.ClusterType], []dumpedField{
			{"static_clusters", "StaticCluster", h.static(resource.ClusterType, "cluster")}, {"dynamic_active_clusters", "DynamicCluster", active}, {"dynamic_warming_clusters", "DynamicCluster", warming},
		}},
		{"ListenersConfigDump", h.versions[resource.ListenerType], []dumpedField{
			{"static_listeners", "StaticListener", h.static(resource.ListenerType, "listener")}, {"dynamic_listeners", "DynamicListener", h.listeners()},
		}},
		{"RoutesConfigDump", "", []dumpedField{{"dynamic_route_configs", "DynamicRouteConfig", routes}}},
		{"SecretsConfigDump", "", []dumpedField{
			{"static_secrets", "StaticSecret", h.static(resource.SecretType, "secret")}, {"dynamic_active_secrets", "DynamicSecret", secrets},
		}},
		{"EcdsConfigDump", "", []dumpedField{{"ecds_filters", "EcdsFilterConfig", filters}}},
	}
	if endpoints {
		hosts, _ := h.entries(resource.EndpointType, "endpoint_config")
		all = append(all, dumped{"EndpointsConfigDump", "", []dumpedField{{"dynamic_endpoint_configs", "DynamicEndpointConfig", hosts}}})
	}
	return all
}

// holding is what is held at a moment. Its resources are immutable.
type holding struct {
	versions map[string]string                  // by type
	held     map[string]map[string]ads.Resource // by type and name
	tracked  map[string]map[string]Resource     // the same
	ignored  map[string]map[string][]string     // the same
	// wanted are the names that are asked for, and whether the control plane has said that
	// there is none of that name; by type, nil for one that is wanted whole.
	wanted   map[string]map[string]bool
	warming  map[string]map[string]bool // the same: not in force yet
	fixtures *fixtures
}

func (s *Source) holding() *holding {
	s.work.Lock()
	defer s.work.Unlock()
	h := &holding{
		fixtures: s.fixtures,
		versions: map[string]string{}, held: map[string]map[string]ads.Resource{}, tracked: map[string]map[string]Resource{},
		wanted: map[string]map[string]bool{}, ignored: s.world.ignored(), warming: map[string]map[string]bool{resource.ClusterType: {}, resource.ListenerType: {}},
	}
	for _, f := range s.feeds {
		for _, url := range append(keptTypes(), resource.SecretType) {
			if f.secrets != (resource.SecretSource{}) && url != resource.SecretType {
				continue
			}
			if h.held[url] == nil {
				h.held[url] = map[string]ads.Resource{}
			}
			maps.Copy(h.held[url], f.client.Held(url))
			h.versions[url], _ = f.client.Version(url)
			h.want(url, f.client)
		}
	}
	for _, w := range s.world.waiting() {
		h.warming[w.Type][w.Name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, all := range s.tracked {
		h.tracked[url] = map[string]Resource{}
		for name, r := range all {
			_, held := h.held[url][name]
			if held || r.Refused != "" {
				h.tracked[url][name] = *r
			}
		}
	}
	return h
}

// want notes what a client wants of a type.
func (h *holding) want(url string, c *ads.Client) {
	all, names := c.Wanted(url)
	if all {
		return
	}
	if h.wanted[url] == nil {
		h.wanted[url] = make(map[string]bool, len(names))
	}
	for _, name := range names {
		h.wanted[url][name] = c.Absent(url, name)
	}
}

// entries are the resources of a type, by name: those in force, or at least accepted,
// and those that are not in force yet. field is what an entry calls the resource.
func (h *holding) entries(url, field string) (active, warming []dumpEntry) {
	for _, name := range slices.Sorted(maps.Keys(h.tracked[url])) {
		e := h.state(url, name, field)
		if url == resource.SecretType {
			e["name"] = name
		}
		h.failure(e, url, name)
		if h.warming[url][name] {
			warming = append(warming, e)
		} else {
			active = append(active, e)
		}
	}
	return active, warming
}

// listeners are the listeners, of which an entry has the state below.
func (h *holding) listeners() (all []dumpEntry) {
	for _, name := range slices.Sorted(maps.Keys(h.tracked[resource.ListenerType])) {
		e := dumpEntry{"name": name}
		if _, held := h.held[resource.ListenerType][name]; held {
			state := "active_state"
			if h.warming[resource.ListenerType][name] {
				state = "warming_state"
			}
			e[state] = h.state(resource.ListenerType, name, "listener")
		}
		h.failure(e, resource.ListenerType, name)
		all = append(all, e)
	}
	return all
}

// state is the resource with what is known of it.
func (h *holding) state(url, name, field string) dumpEntry {
	e := dumpEntry{}
	r := h.tracked[url][name]
	if r.Version != "" {
		e["version_info"] = r.Version
	}
	if !r.Updated.IsZero() {
		e["last_updated"] = r.Updated.UTC().Format(time.RFC3339Nano)
	}
	if held, ok := h.held[url][name]; ok {
		e[field] = readable(url, held.Body)
	}
	if list := h.ignored[url][name]; len(list) > 0 {
		e["ignored"] = list
	}
	return e
}

// failure adds why the last version of the resource was refused.
func (h *holding) failure(e dumpEntry, url, name string) {
	if r := h.tracked[url][name]; r.Refused != "" {
		e["error_state"] = dumpEntry{"details": name + ": " + r.Refused, "last_update_attempt": r.At.UTC().Format(time.RFC3339Nano)}
	}
}

// ignored are the fields that have no effect, by type and name.
func (w *world) ignored() map[string]map[string][]string {
	all := map[string]map[string][]string{
		resource.ClusterType: {}, resource.ListenerType: {}, resource.EndpointType: {}, resource.RouteType: {}, resource.SecretType: {},
		resource.ExtensionType: {}, resource.DubboRouteType: {},
	}
	for name, s := range w.clusters {
		if s.last != nil {
			all[resource.ClusterType][name] = s.last.Ignored
		}
	}
	for name, s := range w.listeners {
		if s.last != nil {
			all[resource.ListenerType][name] = s.last.Ignored
		}
	}
	for name, a := range w.assignments {
		all[resource.EndpointType][name] = a.Ignored
	}
	for name, t := range w.tables {
		if of, dubbo := resource.DubboRoutes(name); dubbo {
			all[resource.DubboRouteType][of] = t.Ignored
		} else {
			all[resource.RouteType][name] = t.Ignored
		}
	}
	for name, e := range w.extensions {
		all[resource.ExtensionType][name] = e.Ignored
	}
	for ref, secret := range w.secrets {
		all[resource.SecretType][ref.Name] = secret.Ignored
	}
	return all
}

// of are the resources of a type.
func (x *fixtures) of(url string) []given {
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

// static are the resources of a type that the file has, in its order.
func (h *holding) static(url, field string) (all []dumpEntry) {
	for _, g := range h.fixtures.of(url) {
		e := dumpEntry{field: readable(url, g.body)}
		if url == resource.SecretType {
			e["name"] = g.name
		}
		if list := h.ignored[url][g.name]; len(list) > 0 {
			e["ignored"] = list
		}
		all = append(all, e)
	}
	return all
}

// bootstrapDump is the bootstrap, without the metadata by which it may prove who it is.
func (s *Source) bootstrapDump() any {
	s.work.Lock()
	given := s.fixtures
	s.work.Unlock()
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
		for _, g := range given.of(url) {
			m := one.message()
			if proto.Unmarshal(g.body, m) == nil { // as ever: it was made of one
				list = append(list, plain(m))
			}
		}
		if len(list) > 0 || url == resource.ClusterType {
			static[one.name] = list
		}
	}
	dynamic := map[string]json.RawMessage{}
	maps.Copy(dynamic, s.boot.said)
	if len(dynamic["ads_config"]) > 0 {
		api := &corev3.ApiConfigSource{}
		if read("", dynamic["ads_config"], api) == nil {
			for _, g := range api.GetGrpcServices() {
				for _, m := range g.GetInitialMetadata() {
					m.Value, m.RawValue = redacted, nil
				}
			}
		}
		dynamic["ads_config"] = plain(api)
	}
	return map[string]any{
		"@type": adminPackage + "BootstrapConfigDump",
		"bootstrap": map[string]any{
			"node": plain(proto.Clone(s.boot.node)), "static_resources": static, "dynamic_resources": dynamic,
		},
	}
}
