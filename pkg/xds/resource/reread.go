package resource

//lint:file-ignore SA1019 control planes still say what the API calls deprecated

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/align"
	"github.com/weft-proxy/weft/pkg/config"
)

// A control plane sends a whole RouteConfiguration when one of its routes changes. What it
// consists of is therefore compared as it was sent, and read only if it is new:
//
//	RouteConfiguration ── head, virtual_hosts ┬─ as before: the *config.VirtualHost of before
//	                                          └─ head, routes ┬─ as before: the *config.Route of before
//	                                                          └─ read
//
// The head of a message is all of its fields but those.

// memory is what a RouteTable keeps for the next one of its name. The zero value knows
// nothing. Immutable.
type memory struct {
	body    []byte // of the resource
	runtime *Runtime
	hosts   []hostNotes
}

// notes is what was found beside the model in a part of a resource.
type notes struct{ ignored, keys []string }

// hostNotes are those of a virtual host.
type hostNotes struct {
	head   notes
	routes []notes // by place; nil: there is nothing
}

// Numbers of fields.
const (
	fieldVirtualHosts = 2  // of RouteConfiguration
	fieldRoutes       = 3  // of VirtualHost
	fieldRouteName    = 14 // of Route
)

// ReadRoutes reads a serialized RouteConfiguration, which it keeps: it must not change.
// The error is Refused.
func ReadRoutes(body []byte, k Kinds) (*RouteTable, error) { return (*RouteTable)(nil).Reread(body, k) }

// Reread is ReadRoutes of what the resource has become that t was read from. Virtual hosts
// and routes that are the same have the addresses that they have in t, which stays as it
// is. k is what t was read with, but for the runtime. t may be nil.
func (t *RouteTable) Reread(body []byte, k Kinds) (*RouteTable, error) {
	parts, ok := split(body, fieldVirtualHosts)
	m := &routev3.RouteConfiguration{}
	if !ok {
		parts.head = body // malformed message, as unmarshal says
	}
	r := &tableReader{report: &report{kinds: k}}
	p := place{report: r.report}
	if err := p.unmarshal(parts.head, m); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errSplit
	}
	r.compare(t, parts.head)
	c, o := p.readTableHead(m)
	r.report.resolveUnknown(0)
	next := &RouteTable{Config: c, memory: memory{body: body, runtime: k.Runtime, hosts: make([]hostNotes, len(parts.all))}}
	places := align.Places(r.parts.all, parts.all)
	for n, part := range parts.all {
		if before := int(places[n]); before >= 0 {
			c.VirtualHosts = append(c.VirtualHosts, r.config.VirtualHosts[before])
			next.memory.hosts[n] = r.again(n, before)
			continue
		}
		vh, noted, err := r.host(part, n, o)
		if err != nil {
			return nil, err
		}
		c.VirtualHosts = append(c.VirtualHosts, vh)
		next.memory.hosts[n] = noted
	}
	if r.config == nil || !sameDomains(r.config, c) {
		p.checkDomains(c)
	}
	err := r.report.result()
	next.Ignored, next.Keys = r.report.ignored, r.report.runtimeKeys()
	return next, err
}

// sameDomains reports whether the virtual hosts of two tables have the same domains.
func sameDomains(a, b *config.RouteTable) bool {
	return slices.EqualFunc(a.VirtualHosts, b.VirtualHosts, func(a, b *config.VirtualHost) bool {
		return a == b || slices.Equal(a.Domains, b.Domains)
	})
}

// tableReader reads one table, of which some may be known.
type tableReader struct {
	report *report
	config *config.RouteTable // of before; nil: nothing is known
	parts  parts              // of its resource
	memory memory
	names  map[string]int // places of its virtual hosts; nil: not made yet
}

// compare takes what may be used of t for a table with a head.
func (r *tableReader) compare(t *RouteTable, head []byte) {
	if t == nil || t.memory.body == nil || t.memory.runtime.Differs(r.report.kinds.Runtime, t.Keys) {
		return
	}
	parts, ok := split(t.memory.body, fieldVirtualHosts)
	if !ok || string(parts.head) != string(head) {
		return
	}
	r.config, r.parts, r.memory = t.Config, parts, t.memory
}

// hostAt is the place of virtual host n.
func (r *tableReader) hostAt(n int) place {
	return place{r.report, ""}.field("virtual_hosts").index(n)
}

// again notes for virtual host n, which is as before, what was noted then.
func (r *tableReader) again(n, before int) hostNotes {
	h := r.memory.hosts[before]
	if n != before {
		from, to := r.hostAt(before).path, r.hostAt(n).path
		h.head = h.head.moved(from, to)
		h.routes = slices.Clone(h.routes)
		for i := range h.routes {
			h.routes[i] = h.routes[i].moved(from, to)
		}
	}
	r.note(h.head)
	for _, n := range h.routes {
		r.note(n)
	}
	return h
}

// moved returns what was noted at a place for another one.
func (n notes) moved(from, to string) notes {
	if len(n.ignored) == 0 {
		return n
	}
	ignored := make([]string, len(n.ignored))
	for i, path := range n.ignored {
		ignored[i] = to + strings.TrimPrefix(path, from)
	}
	return notes{ignored, n.keys}
}

func (r *tableReader) note(n notes) {
	r.report.ignored = append(r.report.ignored, n.ignored...)
	r.report.keys = append(r.report.keys, n.keys...)
}

// noted returns what read notes.
func (r *tableReader) noted(read func()) notes {
	ignored, keys := len(r.report.ignored), len(r.report.keys)
	read()
	r.report.resolveUnknown(ignored)
	return notes{slices.Clone(r.report.ignored[ignored:]), slices.Clone(r.report.keys[keys:])}
}

// host reads virtual host n, which is not as it was before.
func (r *tableReader) host(part string, n int, table outer) (*config.VirtualHost, hostNotes, error) {
	var h hostNotes
	at := r.hostAt(n)
	m, routes, err := openHost(part)
	if err != nil {
		return nil, h, at.placed(err)
	}
	var v *config.VirtualHost
	var o outer
	h.head = r.noted(func() {
		at.findUnknown(m.ProtoReflect())
		v, o = at.readHostHead(m, table)
	})
	old := r.old(m, n)
	places := align.Places(old.routes, routes)
	for i, part := range routes {
		var found notes
		if before := places[i]; before >= 0 {
			v.Routes = append(v.Routes, old.config.Routes[before])
			if old.notes != nil {
				found = old.notes[before]
				if i != int(before) || n != old.at {
					found = found.moved(r.hostAt(old.at).field("routes").index(int(before)).path, at.field("routes").index(i).path)
				}
				r.note(found)
			}
		} else {
			one, at := &routev3.Route{}, at.field("routes").index(i)
			if err := decoding().Unmarshal([]byte(part), one); err != nil {
				return nil, h, at.placed(Refused{malformed(err)})
			}
			found = r.noted(func() {
				at.findUnknown(one.ProtoReflect())
				v.Routes = append(v.Routes, at.readRoute(one, o))
			})
		}
		if h.routes == nil && len(found.ignored)+len(found.keys) > 0 {
			h.routes = make([]notes, len(routes))
		}
		if h.routes != nil {
			h.routes[i] = found
		}
	}
	old.name(v, routes, places)
	return v, h, nil
}

// openHost returns a serialized virtual host, without its routes, and these.
func openHost(part string) (m *routev3.VirtualHost, routes []string, err error) {
	body := []byte(part)
	parts, ok := split(body, fieldRoutes)
	if !ok {
		parts.head = body
	}
	m = &routev3.VirtualHost{}
	if err := decoding().Unmarshal(parts.head, m); err != nil {
		return nil, nil, Refused{malformed(err)}
	}
	if !ok {
		return nil, nil, errSplit
	}
	return m, parts.all, nil
}

// errSplit is never seen: what cannot be split cannot be unmarshaled either.
var errSplit = Refused{"malformed message"}

// oldHost is what a virtual host was. The zero value was nothing.
type oldHost struct {
	config *config.VirtualHost
	at     int      // among the virtual hosts
	routes []string // serialized
	notes  []notes  // of routes; nil: there is nothing
}

// old returns what virtual host n was, if its routes mean now what they meant then.
func (r *tableReader) old(m *routev3.VirtualHost, n int) (h oldHost) {
	if r.config == nil {
		return h
	}
	all := r.config.VirtualHosts
	if n >= len(all) || all[n].Name != m.GetName() {
		if r.names == nil {
			r.names = make(map[string]int, len(all))
			for i, vh := range all {
				r.names[vh.Name] = i
			}
		}
		at, ok := r.names[m.GetName()]
		if !ok {
			return h
		}
		n = at
	}
	before, routes, err := openHost(r.parts.all[n])
	if err != nil || !proto.Equal(inherited(before), inherited(m)) {
		return h
	}
	return oldHost{config: all[n], at: n, routes: routes, notes: r.memory.hosts[n].routes}
}

// inherited is what routes have of the virtual host that they are in.
func inherited(m *routev3.VirtualHost) *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name: m.GetName(), TypedPerFilterConfig: m.GetTypedPerFilterConfig(),
		RetryPolicy: m.GetRetryPolicy(), HedgePolicy: m.GetHedgePolicy(), RequestMirrorPolicies: m.GetRequestMirrorPolicies(),
	}
}

// name gives the routes of v their names, as nameRoutes does: those of places have them
// already, from before.
func (h *oldHost) name(v *config.VirtualHost, routes []string, places []int32) {
	if h.config == nil {
		nameRoutes(v, places, func(i int) string { return v.Routes[i].Name })
		return
	}
	same := len(routes) == len(h.routes)
	for i := 0; same && i < len(routes); i++ {
		same = int(places[i]) == i || places[i] < 0 && v.Routes[i].Name == routeName(h.routes[i])
	}
	if !same {
		nameRoutes(v, places, func(i int) string {
			if places[i] < 0 {
				return v.Routes[i].Name
			}
			return routeName(routes[i])
		})
		return
	}
	for i, before := range places {
		if before < 0 {
			v.Routes[i].Name = h.config.Routes[i].Name
		}
	}
}

// routeName returns the name that a serialized route has.
func routeName(route string) (name string) {
	for body := []byte(route); len(body) > 0; {
		number, kind, n := protowire.ConsumeTag(body)
		if number == fieldRouteName && kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(body[n:])
			name = string(text)
		}
		body = body[n+protowire.ConsumeFieldValue(number, kind, body[n:]):]
	}
	return name
}

// parts are a serialized message.
type parts struct {
	head []byte   // without the fields of a number
	all  []string // the values of these, in order
}

// split parts a serialized message; false: it is none.
func split(body []byte, number protowire.Number) (p parts, ok bool) {
	text := string(body) // once, not each part
	for at := 0; at < len(body); {
		num, kind, n := protowire.ConsumeTag(body[at:])
		if n < 0 {
			return parts{}, false
		}
		m := protowire.ConsumeFieldValue(num, kind, body[at+n:])
		if m < 0 {
			return parts{}, false
		}
		end := at + n + m
		if num == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(body[at+n : end])
			p.all = append(p.all, text[end-len(value):end])
		} else {
			p.head = append(p.head, body[at:end]...)
		}
		at = end
	}
	return p, true
}
