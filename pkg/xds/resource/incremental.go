package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/align"
	"github.com/weft-proxy/weft/pkg/config"
)

// A control plane sends the entire RouteConfiguration when one of its routes changes. Update
// therefore compares the serialized parts with the previous ones and reuses unchanged parts:
//
//	RouteConfiguration ── head, virtual_hosts ┬─ unchanged: the previous *config.VirtualHost
//	                                          └─ head, routes ┬─ unchanged: the previous *config.Route
//	                                                          └─ parse
//
// The head of a message consists of the fields other than virtual_hosts or routes. If the head of
// the RouteConfiguration or the value of a used runtime key has changed, Update parses everything
// again. If settings that routes inherit from their virtual host have changed, Update parses these
// routes again.

// previousTable holds what a RouteTable keeps for the next Update. The zero value is empty.
// Immutable.
type previousTable struct {
	body                []byte // the serialized resource
	runtime             *Runtime
	virtualHostFindings []virtualHostFindings
}

// findings are the ignored fields and the used runtime keys of a part of a resource.
type findings struct{ ignored, keys []string }

// virtualHostFindings are the findings of a virtual host.
type virtualHostFindings struct {
	head   findings
	routes []findings // by index; nil if no route has findings
}

// These are protobuf field numbers.
const (
	fieldVirtualHosts = 2  // of RouteConfiguration
	fieldRoutes       = 3  // of VirtualHost
	fieldRouteName    = 14 // of Route
)

// ReadRoutes parses a serialized RouteConfiguration. It keeps body: the caller must not change it.
// The error is a RejectedError.
func ReadRoutes(body []byte, caps Capabilities) (*RouteTable, error) {
	return (*RouteTable)(nil).Update(body, caps)
}

// Update parses the new version of the resource of t and keeps body, like ReadRoutes. The result
// may share unchanged virtual hosts and routes with t. Update does not change t, which may be nil.
// caps must be the capabilities that t was read with, except for the runtime.
func (t *RouteTable) Update(body []byte, caps Capabilities) (*RouteTable, error) {
	parts, ok := splitField(body, fieldVirtualHosts)
	m := &routev3.RouteConfiguration{}
	if !ok {
		parts.head = body // malformed, so unmarshal returns the error
	}
	r := &tableReader{report: &report{capabilities: caps}}
	p := fieldReader{report: r.report}
	if err := p.unmarshal(parts.head, m); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errMalformed
	}
	r.usePrevious(t, parts.head)
	c, inherited := p.readTableHead(m)
	r.report.resolveUnknown(0)
	next := &RouteTable{Config: c, previous: previousTable{body: body, runtime: caps.Runtime, virtualHostFindings: make([]virtualHostFindings, len(parts.values))}}
	previousIndexes := align.Indexes(r.previousParts.values, parts.values)
	for n, part := range parts.values {
		if previousIndex := int(previousIndexes[n]); previousIndex >= 0 {
			c.VirtualHosts = append(c.VirtualHosts, r.previousConfig.VirtualHosts[previousIndex])
			next.previous.virtualHostFindings[n] = r.reuseFindings(n, previousIndex)
			continue
		}
		vh, found, err := r.readVirtualHost(part, n, inherited)
		if err != nil {
			return nil, err
		}
		c.VirtualHosts = append(c.VirtualHosts, vh)
		next.previous.virtualHostFindings[n] = found
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

// tableReader parses one table and reuses the unchanged parts of the previous table.
type tableReader struct {
	report             *report
	previousConfig     *config.RouteTable // nil if nothing can be reused
	previousParts      messageParts       // parts of the previous resource
	previous           previousTable
	virtualHostIndexes map[string]int // from names of virtual hosts to indexes in previousConfig; nil until needed
}

// usePrevious lets r reuse parts of t, unless the head or the value of a used runtime key has
// changed.
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

// virtualHostReader returns the reader of virtual host n.
func (r *tableReader) virtualHostReader(n int) fieldReader {
	return fieldReader{r.report, ""}.field("virtual_hosts").index(n)
}

// reuseFindings records and returns the previous findings of virtual host n. The virtual host is
// unchanged; its index in the previous table was previousIndex.
func (r *tableReader) reuseFindings(n, previousIndex int) virtualHostFindings {
	h := r.previous.virtualHostFindings[previousIndex]
	if n != previousIndex {
		from, to := r.virtualHostReader(previousIndex).path, r.virtualHostReader(n).path
		h.head = h.head.withPathPrefix(from, to)
		h.routes = slices.Clone(h.routes)
		for i := range h.routes {
			h.routes[i] = h.routes[i].withPathPrefix(from, to)
		}
	}
	r.addFindings(h.head)
	for _, routeFindings := range h.routes {
		r.addFindings(routeFindings)
	}
	return h
}

// withPathPrefix returns f with the path prefix from replaced by to.
func (f findings) withPathPrefix(from, to string) findings {
	if len(f.ignored) == 0 {
		return f
	}
	ignored := make([]string, len(f.ignored))
	for i, path := range f.ignored {
		ignored[i] = to + strings.TrimPrefix(path, from)
	}
	return findings{ignored, f.keys}
}

func (r *tableReader) addFindings(f findings) {
	r.report.ignored = append(r.report.ignored, f.ignored...)
	r.report.usedKeys = append(r.report.usedKeys, f.keys...)
}

// collectFindings calls read and returns the findings that it recorded.
func (r *tableReader) collectFindings(read func()) findings {
	ignored, keys := len(r.report.ignored), len(r.report.usedKeys)
	read()
	r.report.resolveUnknown(ignored)
	return findings{slices.Clone(r.report.ignored[ignored:]), slices.Clone(r.report.usedKeys[keys:])}
}

// readVirtualHost parses virtual host n, which is new or has changed.
func (r *tableReader) readVirtualHost(part string, n int, table inheritedSettings) (*config.VirtualHost, virtualHostFindings, error) {
	var h virtualHostFindings
	at := r.virtualHostReader(n)
	m, routes, err := unpackVirtualHost(part)
	if err != nil {
		return nil, h, at.prefixError(err)
	}
	var v *config.VirtualHost
	var inherited inheritedSettings
	h.head = r.collectFindings(func() {
		at.inspect(m)
		v, inherited = at.readVirtualHostHead(m, table)
	})
	if v.Matcher != nil {
		at.checkMatcherOnly(len(routes))
		return v, h, nil
	}
	previous := r.previousVirtualHost(m, n)
	previousIndexes := align.Indexes(previous.routes, routes)
	for i, part := range routes {
		var found findings
		if previousIndex := previousIndexes[i]; previousIndex >= 0 {
			v.Routes = append(v.Routes, previous.config.Routes[previousIndex])
			if previous.routeFindings != nil {
				found = previous.routeFindings[previousIndex]
				if i != int(previousIndex) || n != previous.index {
					found = found.withPathPrefix(r.virtualHostReader(previous.index).field("routes").index(int(previousIndex)).path, at.field("routes").index(i).path)
				}
				r.addFindings(found)
			}
		} else {
			route, at := &routev3.Route{}, at.field("routes").index(i)
			if err := unmarshalOptions().Unmarshal([]byte(part), route); err != nil {
				return nil, h, at.prefixError(RejectedError{{"", malformedReason(err)}})
			}
			found = r.collectFindings(func() {
				at.inspect(route)
				v.Routes = append(v.Routes, at.readRoute(route, inherited))
			})
		}
		if h.routes == nil && len(found.ignored)+len(found.keys) > 0 {
			h.routes = make([]findings, len(routes))
		}
		if h.routes != nil {
			h.routes[i] = found
		}
	}
	previous.nameRoutes(v, routes, previousIndexes)
	return v, h, nil
}

// unpackVirtualHost decodes a serialized virtual host without its routes, and returns the routes in
// serialized form.
func unpackVirtualHost(part string) (m *routev3.VirtualHost, routes []string, err error) {
	body := []byte(part)
	parts, ok := splitField(body, fieldRoutes)
	if !ok {
		parts.head = body
	}
	m = &routev3.VirtualHost{}
	if err := unmarshalOptions().Unmarshal(parts.head, m); err != nil {
		return nil, nil, RejectedError{{"", malformedReason(err)}}
	}
	if !ok {
		return nil, nil, errMalformed
	}
	return m, parts.values, nil
}

// errMalformed is the error for a message that cannot be split. Callers never see it: unmarshaling
// the message fails first.
var errMalformed = RejectedError{{"", "malformed message"}}

// previousVirtualHost is the previous version of a virtual host. The zero value means that there is
// none.
type previousVirtualHost struct {
	config        *config.VirtualHost
	index         int        // index in the previous table
	routes        []string   // serialized
	routeFindings []findings // by index; nil if no route has findings
}

// previousVirtualHost returns the previous version of virtual host n, if its routes inherit the
// same settings.
func (r *tableReader) previousVirtualHost(m *routev3.VirtualHost, n int) (h previousVirtualHost) {
	if r.previousConfig == nil {
		return h
	}
	hosts := r.previousConfig.VirtualHosts
	if n >= len(hosts) || hosts[n].Name != m.GetName() {
		if r.virtualHostIndexes == nil {
			r.virtualHostIndexes = make(map[string]int, len(hosts))
			for j, vh := range hosts {
				r.virtualHostIndexes[vh.Name] = j
			}
		}
		i, ok := r.virtualHostIndexes[m.GetName()]
		if !ok {
			return h
		}
		n = i
	}
	previous, routes, err := unpackVirtualHost(r.previousParts.values[n])
	if err != nil || !proto.Equal(inheritedFields(previous), inheritedFields(m)) {
		return h
	}
	return previousVirtualHost{config: hosts[n], index: n, routes: routes, routeFindings: r.previous.virtualHostFindings[n].routes}
}

// inheritedFields returns the fields of a virtual host on which its routes depend.
func inheritedFields(m *routev3.VirtualHost) *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name: m.GetName(), TypedPerFilterConfig: m.GetTypedPerFilterConfig(),
		RetryPolicy: m.GetRetryPolicy(), HedgePolicy: m.GetHedgePolicy(), RequestMirrorPolicies: m.GetRequestMirrorPolicies(),
	}
}

// nameRoutes names the routes of v. If every route keeps its index and its name in the resource,
// the previous names apply.
func (h *previousVirtualHost) nameRoutes(v *config.VirtualHost, routes []string, previousIndexes []int32) {
	if h.config == nil {
		nameRoutes(v, previousIndexes, func(i int) string { return v.Routes[i].Name })
		return
	}
	namesKept := len(routes) == len(h.routes)
	for i := 0; namesKept && i < len(routes); i++ {
		namesKept = int(previousIndexes[i]) == i || previousIndexes[i] < 0 && v.Routes[i].Name == routeName(h.routes[i])
	}
	if !namesKept {
		nameRoutes(v, previousIndexes, func(i int) string {
			if previousIndexes[i] < 0 {
				return v.Routes[i].Name
			}
			return routeName(routes[i])
		})
		return
	}
	for i, previousIndex := range previousIndexes {
		if previousIndex < 0 {
			v.Routes[i].Name = h.config.Routes[i].Name
		}
	}
}

// routeName returns the name of a serialized route.
func routeName(route string) (name string) {
	for body := []byte(route); len(body) > 0; {
		number, wireType, n := protowire.ConsumeTag(body)
		if number == fieldRouteName && wireType == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(body[n:])
			name = string(text)
		}
		body = body[n+protowire.ConsumeFieldValue(number, wireType, body[n:]):]
	}
	return name
}

// messageParts is a serialized message, split by one field number.
type messageParts struct {
	head   []byte   // the other fields
	values []string // the values of the field, in order
}

// splitField splits a serialized message by a field number. ok is false if the message is
// malformed.
func splitField(body []byte, number protowire.Number) (p messageParts, ok bool) {
	text := string(body) // one copy for all parts
	for offset := 0; offset < len(body); {
		num, wireType, n := protowire.ConsumeTag(body[offset:])
		if n < 0 {
			return messageParts{}, false
		}
		m := protowire.ConsumeFieldValue(num, wireType, body[offset+n:])
		if m < 0 {
			return messageParts{}, false
		}
		end := offset + n + m
		if num == number && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(body[offset+n : end])
			p.values = append(p.values, text[end-len(value):end])
		} else {
			p.head = append(p.head, body[offset:end]...)
		}
		offset = end
	}
	return p, true
}
