package router

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// mutation changes the headers of a message: first removals, then additions, then next. next is the
// mutation of the enclosing level; the levels are weighted cluster, route, virtual host and table.
// With config.RouteTable.MostSpecificMutationsWin, the order is weighted cluster, table, virtual host
// and route.
type mutation struct {
	remove []string
	add    []addition
	next   *mutation
}

// addition is a header to add if its condition is met. If its value is a single variable that the
// exchange lacks, apply adds nothing. Without append, apply then removes the headers of that name,
// except the host of an HTTP request, so that a client cannot forge the proxy's header.
type addition struct {
	name            string
	value           string             // if template is nil
	template        *variable.Template // its text has no control characters
	append          bool               // false: replaces the headers of that name
	condition       config.AddIf
	empty           config.EmptyValue
	isRoutingHeader bool // a routing header, which RPC requests do not repeat: append affects only HTTP
}

// apply changes h, which is the request or response header of x. m may be nil.
func (m *mutation) apply(h *protocol.Header, x *protocol.Exchange) {
	for ; m != nil; m = m.next {
		for _, name := range m.remove {
			h.Del(name)
		}
		for i := range m.add {
			m.add[i].apply(h, x)
		}
	}
}

// changes reports whether m removes the header name, or replaces its value. m may be nil.
func (m *mutation) changes(name string) bool {
	for ; m != nil; m = m.next {
		for _, removed := range m.remove {
			if protocol.EqualFold(removed, name) {
				return true
			}
		}
		for i := range m.add {
			if a := &m.add[i]; !a.append && protocol.EqualFold(a.name, name) {
				return true
			}
		}
	}
	return false
}

func (a *addition) apply(h *protocol.Header, x *protocol.Exchange) {
	if a.condition != config.AddAlways {
		if _, present := h.Lookup(a.name); present != (a.condition == config.AddIfPresent) {
			return
		}
	}
	value, ok := a.valueFor(x)
	switch {
	case a.empty == config.EmptySkipped && value == "" && (ok || a.append):
		return
	case a.empty == config.EmptyAlwaysAdded && !ok:
		value, ok = "", true
	}
	switch {
	case isHost(a.name) && !isRPC(x):
		if ok && validAuthority(value) {
			x.RewriteAuthority(value)
		}
	case !ok && !a.append:
		h.Del(a.name)
	case !ok:
	case a.append && !(a.isRoutingHeader && isRPC(x)):
		h.Add(a.name, value)
	default:
		h.Set(a.name, value)
	}
}

// valueFor returns the value for x, and false if it is a single variable that x lacks.
func (a *addition) valueFor(x *protocol.Exchange) (string, bool) {
	if a.template == nil {
		return a.value, true
	}
	return a.template.Text(x)
}

// mutationOrder says which mutations apply first: those of a level or those of its enclosing levels.
type mutationOrder uint8

const (
	innerFirst mutationOrder = iota
	outerFirst
)

// orderOf returns the order of the levels of c, except weighted clusters.
func orderOf(c *config.RouteTable) mutationOrder {
	if c.MostSpecificMutationsWin {
		return outerFirst
	}
	return innerFirst
}

// join combines m with the mutations of the enclosing levels; both may be nil. It does not change
// outer, which other routes share.
func (m *mutation) join(outer *mutation, order mutationOrder) *mutation {
	switch {
	case m == nil:
		return outer
	case order == outerFirst:
		return outer.followedBy(m)
	}
	m.next = outer
	return m
}

// followedBy returns a copy of the list m that ends with last.
func (m *mutation) followedBy(last *mutation) *mutation {
	if m == nil {
		return last
	}
	out := *m
	out.next = m.next.followedBy(last)
	return &out
}

// compileMutations compiles the mutations of a weighted cluster, route, virtual host or table, and
// joins them with outer, those of the enclosing levels. If there is nothing to change, it returns
// outer.
func compileMutations(request, response *config.HeaderMutation, outer inherited, order mutationOrder) (*mutation, *mutation, error) {
	in, err := compileMutation(request, true)
	if err != nil {
		return nil, nil, fmt.Errorf("request headers: %w", err)
	}
	out, err := compileMutation(response, false)
	if err != nil {
		return nil, nil, fmt.Errorf("response headers: %w", err)
	}
	return in.join(outer.request, order), out.join(outer.response, order), nil
}

// compileMutation compiles c. It returns nil if c changes nothing.
func compileMutation(c *config.HeaderMutation, isRequest bool) (*mutation, error) {
	if len(c.Add) == 0 && len(c.Remove) == 0 {
		return nil, nil //nolint:nilnil // nil means no change
	}
	m := &mutation{remove: c.Remove}
	for _, name := range c.Remove {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if isHost(name) {
			reason := "every request needs a host"
			if !isRequest {
				reason = "a response has no host"
			}
			return nil, fmt.Errorf("%q cannot be removed: %s", name, reason)
		}
	}
	for i := range c.Add {
		a, err := compileAddition(&c.Add[i], isRequest)
		if err != nil {
			return nil, err
		}
		m.add = append(m.add, a)
	}
	return m, nil
}

func compileAddition(c *config.HeaderValue, isRequest bool) (addition, error) {
	a := addition{name: c.Name, append: c.Append, condition: c.If, empty: c.Empty, isRoutingHeader: isRequest && isRoutingHeader(c.Name)}
	if err := checkName(c.Name); err != nil {
		return a, err
	}
	if !isRequest && isHost(c.Name) {
		return a, fmt.Errorf("%q cannot be added: a response has no host", c.Name)
	}
	for i := range len(c.Value) {
		if b := c.Value[i]; b < ' ' && b != '\t' || b == 0x7f {
			return a, fmt.Errorf("the value of %q has the control character %q at byte %d (RFC 9110 5.5)", c.Name, b, i+1)
		}
	}
	t, err := variable.Compile(c.Value)
	if err != nil {
		return a, fmt.Errorf("the value of %q: %w", c.Name, err)
	}
	var constant bool
	if a.value, constant = t.Constant(); !constant {
		a.template = t
	} else if isHost(c.Name) && !validAuthority(a.value) {
		return a, fmt.Errorf("the value of %q is not a host: %q", c.Name, a.value)
	}
	return a, nil
}

// isHost reports whether name means Request.Authority in an HTTP request.
func isHost(name string) bool {
	return protocol.EqualFold(name, "host") || protocol.EqualFold(name, ":authority")
}

// checkName rejects names that are not header names (RFC 9110 5.1). It also rejects the headers
// that only the HTTP engine may write: they frame a message, or belong to the connection (RFC 9110
// 7.6.1).
func checkName(name string) error {
	if isHost(name) {
		return nil
	}
	switch strings.ToLower(name) {
	case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "http2-settings":
		return fmt.Errorf("%q cannot be changed: the field belongs to the connection or the framing of the message", name)
	}
	if name == "" {
		return fmt.Errorf("a header to change has no name")
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return fmt.Errorf("%q is not a header name: byte %d is %q", name, i+1, name[i])
		}
	}
	return nil
}

// isToken reports whether c may be in a token (RFC 9110 5.6.2).
func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// validAuthority reports whether s can be a host and port, without user information (RFC 3986
// 3.2.2, RFC 9110 4.2.4).
func validAuthority(s string) bool {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			continue
		}
		if strings.IndexByte("-._~!$&'()*+,;=:[]%", c) < 0 {
			return false
		}
	}
	return s != ""
}
