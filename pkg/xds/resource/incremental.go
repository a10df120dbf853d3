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

// previousTable is what a RouteTable keeps for the next one of its name. The zero value knows
// nothing. Immutable.
type previousTable struct {
	body         []byte // of the resource
	runtime      *Runtime
	hostFindings []hostFindings
}

// findings is what was found beside the model in a part of a resource.
type findings struct{ ignored, keys []string }

// hostFindings are those of a virtual host.
type hostFindings struct {
	head   findings
	routes []findings // by place; nil: there is nothing
}

// Numbers of fields.
const (
	fieldVirtualHosts = 2  // of RouteConfiguration
	fieldRoutes       = 3  // of VirtualHost
	fieldRouteName    = 14 // of Route
)

// ReadRoutes reads a serialized RouteConfiguration, which it keeps: it must not change.
// The error is Refused.
func ReadRoutes(body []byte, k Capabilities) (*RouteTable, error) {
	return (*RouteTable)(nil).Update(body, k)
}

// Update is ReadRoutes of what the resource has become that t was read from. Virtual hosts
// and routes that are the same have the addresses that they have in t, which stays as it
// is. k is what t was read with, but for the runtime. t may be nil.
func (t *RouteTable) Update(body []byte, k Capabilities) (*RouteTable, error) {
	parts, ok := splitField(body, fieldVirtualHosts)
	m := &routev3.RouteConfiguration{}
	if !ok {
		parts.head = body // malformed message, as unmarshal says
	}
	r := &tableReader{report: &report{capabilities: k}}
	p := fieldReader{report: r.report}
	if err := p.unmarshal(parts.head, m); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errMalformed
	}
	r.usePrevious(t, parts.head)
	c, o := p.readTableHead(m)
	r.report.resolveUnknown(0)
	next := &RouteTable{Config: c, previous: previousTable{body: body, runtime: k.Runtime, hostFindings: make([]hostFindings, len(parts.values))}}
	places := align.Indexes(r.previousParts.values, parts.values)
	for n, part := range parts.values {
		if before := int(places[n]); before >= 0 {
			c.VirtualHosts = append(c.VirtualHosts, r.previousConfig.VirtualHosts[before])
			next.previous.hostFindings[n] = r.reuseFindings(n, before)
			continue
		}
		vh, noted, err := r.readHost(part, n, o)
		if err != nil {
			return nil, err
		}
		c.VirtualHosts = append(c.VirtualHosts, vh)
		next.previous.hostFindings[n] = noted
	}
	if r.previousConfig == nil || !sameDomains(r.previousConfig, c) {
		p.checkDomains(c)
	}
	err := r.report.rejection()
	next.Ignored, next.RuntimeKeys = r.report.ignored, r.report.runtimeKeys()
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
	report         *report
	previousConfig *config.RouteTable // of before; nil: nothing is known
	previousParts  messageParts       // of its resource
	previous       previousTable
	hostIndexes    map[string]int // places of its virtual hosts; nil: not made yet
}

// usePrevious takes what may be used of t for a table with a head.
func (r *tableReader) usePrevious(t *RouteTable, head []byte) {
	if t == nil || t.previous.body == nil || t.previous.runtime.Differs(r.report.capabilities.Runtime, t.RuntimeKeys) {
		return
	}
	parts, ok := splitField(t.previous.body, fieldVirtualHosts)
	if !ok || string(parts.head) != string(head) {
		return
	}
	r.previousConfig, r.previousParts, r.previous = t.Config, parts, t.previous
}

// hostReader is the place of virtual host n.
func (r *tableReader) hostReader(n int) fieldReader {
	return fieldReader{r.report, ""}.field("virtual_hosts").index(n)
}

// reuseFindings notes for virtual host n, which is as before, what was noted then.
func (r *tableReader) reuseFindings(n, before int) hostFindings {
	h := r.previous.hostFindings[before]
	if n != before {
		from, to := r.hostReader(before).path, r.hostReader(n).path
		h.head = h.head.withPathPrefix(from, to)
		h.routes = slices.Clone(h.routes)
		for i := range h.routes {
			h.routes[i] = h.routes[i].withPathPrefix(from, to)
		}
	}
	r.addFindings(h.head)
	for _, n := range h.routes {
		r.addFindings(n)
	}
	return h
}

// withPathPrefix returns what was noted at a place for another one.
func (n findings) withPathPrefix(from, to string) findings {
	if len(n.ignored) == 0 {
		return n
	}
	ignored := make([]string, len(n.ignored))
	for i, path := range n.ignored {
		ignored[i] = to + strings.TrimPrefix(path, from)
	}
	return findings{ignored, n.keys}
}

func (r *tableReader) addFindings(n findings) {
	r.report.ignored = append(r.report.ignored, n.ignored...)
	r.report.usedKeys = append(r.report.usedKeys, n.keys...)
}

// collectFindings returns what read notes.
func (r *tableReader) collectFindings(read func()) findings {
	ignored, keys := len(r.report.ignored), len(r.report.usedKeys)
	read()
	r.report.resolveUnknown(ignored)
	return findings{slices.Clone(r.report.ignored[ignored:]), slices.Clone(r.report.usedKeys[keys:])}
}

// readHost reads virtual host n, which is not as it was before.
func (r *tableReader) readHost(part string, n int, table inheritedSettings) (*config.VirtualHost, hostFindings, error) {
	var h hostFindings
	at := r.hostReader(n)
	m, routes, err := unpackHost(part)
	if err != nil {
		return nil, h, at.prefixError(err)
	}
	var v *config.VirtualHost
	var o inheritedSettings
	h.head = r.collectFindings(func() {
		at.findUnknown(m.ProtoReflect())
		v, o = at.readVirtualHostHead(m, table)
	})
	old := r.previousHost(m, n)
	places := align.Indexes(old.routes, routes)
	for i, part := range routes {
		var found findings
		if before := places[i]; before >= 0 {
			v.Routes = append(v.Routes, old.config.Routes[before])
			if old.routeFindings != nil {
				found = old.routeFindings[before]
				if i != int(before) || n != old.index {
					found = found.withPathPrefix(r.hostReader(old.index).field("routes").index(int(before)).path, at.field("routes").index(i).path)
				}
				r.addFindings(found)
			}
		} else {
			one, at := &routev3.Route{}, at.field("routes").index(i)
			if err := unmarshalOptions().Unmarshal([]byte(part), one); err != nil {
				return nil, h, at.prefixError(RejectedError{malformedReason(err)})
			}
			found = r.collectFindings(func() {
				at.findUnknown(one.ProtoReflect())
				v.Routes = append(v.Routes, at.readRoute(one, o))
			})
		}
		if h.routes == nil && len(found.ignored)+len(found.keys) > 0 {
			h.routes = make([]findings, len(routes))
		}
		if h.routes != nil {
			h.routes[i] = found
		}
	}
	old.nameRoutes(v, routes, places)
	return v, h, nil
}

// unpackHost returns a serialized virtual host, without its routes, and these.
func unpackHost(part string) (m *routev3.VirtualHost, routes []string, err error) {
	body := []byte(part)
	parts, ok := splitField(body, fieldRoutes)
	if !ok {
		parts.head = body
	}
	m = &routev3.VirtualHost{}
	if err := unmarshalOptions().Unmarshal(parts.head, m); err != nil {
		return nil, nil, RejectedError{malformedReason(err)}
	}
	if !ok {
		return nil, nil, errMalformed
	}
	return m, parts.values, nil
}

// errMalformed is never seen: what cannot be split cannot be unmarshaled either.
var errMalformed = RejectedError{"malformed message"}

// previousHost is what a virtual host was. The zero value was nothing.
type previousHost struct {
	config        *config.VirtualHost
	index         int        // among the virtual hosts
	routes        []string   // serialized
	routeFindings []findings // of routes; nil: there is nothing
}

// previousHost returns what virtual host n was, if its routes mean now what they meant then.
func (r *tableReader) previousHost(m *routev3.VirtualHost, n int) (h previousHost) {
	if r.previousConfig == nil {
		return h
	}
	all := r.previousConfig.VirtualHosts
	if n >= len(all) || all[n].Name != m.GetName() {
		if r.hostIndexes == nil {
			r.hostIndexes = make(map[string]int, len(all))
			for i, vh := range all {
				r.hostIndexes[vh.Name] = i
			}
		}
		at, ok := r.hostIndexes[m.GetName()]
		if !ok {
			return h
		}
		n = at
	}
	before, routes, err := unpackHost(r.previousParts.values[n])
	if err != nil || !proto.Equal(inherited(before), inherited(m)) {
		return h
	}
	return previousHost{config: all[n], index: n, routes: routes, routeFindings: r.previous.hostFindings[n].routes}
}

// inherited is what routes have of the virtual host that they are in.
func inherited(m *routev3.VirtualHost) *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name: m.GetName(), TypedPerFilterConfig: m.GetTypedPerFilterConfig(),
		RetryPolicy: m.GetRetryPolicy(), HedgePolicy: m.GetHedgePolicy(), RequestMirrorPolicies: m.GetRequestMirrorPolicies(),
	}
}

// nameRoutes gives the routes of v their names, as nameRoutes does: those of places have them
// already, from before.
func (h *previousHost) nameRoutes(v *config.VirtualHost, routes []string, places []int32) {
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

// messageParts are a serialized message.
type messageParts struct {
	head   []byte   // without the fields of a number
	values []string // the values of these, in order
}

// splitField parts a serialized message; false: it is none.
func splitField(body []byte, number protowire.Number) (p messageParts, ok bool) {
	text := string(body) // once, not each part
	for at := 0; at < len(body); {
		num, kind, n := protowire.ConsumeTag(body[at:])
		if n < 0 {
			return messageParts{}, false
		}
		m := protowire.ConsumeFieldValue(num, kind, body[at+n:])
		if m < 0 {
			return messageParts{}, false
		}
		end := at + n + m
		if num == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(body[at+n : end])
			p.values = append(p.values, text[end-len(value):end])
		} else {
			p.head = append(p.head, body[at:end]...)
		}
		at = end
	}
	return p, true
}
