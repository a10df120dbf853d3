package rbac

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// compile returns the compiled form of r, or nil if r is nil. key names r in errors.
func (r *Rules) compile(key string) (*rules, error) {
	if r == nil {
		return nil, nil
	}
	compiled := new(rules)
	switch r.Action {
	case "DENY":
		compiled.action = actionDeny
	case "LOG":
		compiled.action = actionLog
	}
	for _, name := range slices.Sorted(maps.Keys(r.Policies)) {
		p := r.Policies[name]
		if p.Condition != nil || p.CheckedCondition != nil {
			// Without its condition, an ALLOW policy would allow more requests. This also applies
			// to an empty condition.
			return nil, fmt.Errorf("%s.policies[%q]: conditions in CEL are not supported yet", key, name)
		}
		c := compiler{rules: compiled}
		permissions := c.compileAny("permissions", len(p.Permissions), func(i int) node { return c.permission(&p.Permissions[i]) })
		principals := c.compileAny("principals", len(p.Principals), func(i int) node { return c.principal(&p.Principals[i]) })
		if c.err != nil {
			return nil, fmt.Errorf("%s.policies[%q].%w", key, name, c.err)
		}
		compiled.policies = append(compiled.policies, policy{name, permissions, principals})
	}
	return compiled, nil
}

// compiler compiles a policy to nodes. It records the first error.
type compiler struct {
	rules *rules // the compiler sets its fields readsPath, readsCall, readsFields, readsClient and readsMetadata
	err   error
}

func (c *compiler) fail(err error) node {
	if c.err == nil && err != nil {
		c.err = err
	}
	return node{}
}

// compileList compiles the n members of a list. Errors name key and the index. An empty list is an
// error.
func (c *compiler) compileList(key string, n int, member func(i int) node) []node {
	if n == 0 {
		c.fail(fmt.Errorf("%s is empty", key))
		return nil
	}
	nodes := make([]node, n)
	for i := range nodes {
		previousErr := c.err
		if nodes[i] = member(i); previousErr == nil && c.err != nil {
			c.err = fmt.Errorf("%s[%d]: %w", key, i, c.err)
		}
	}
	return nodes
}

func (c *compiler) compileAny(key string, n int, member func(i int) node) node {
	return node{kind: kindAny, children: c.compileList(key, n, member)}
}

func (c *compiler) compileAll(key string, n int, member func(i int) node) node {
	return node{kind: kindAll, children: c.compileList(key, n, member)}
}

// choice is a member of a permission or a principal that may be set.
type choice struct {
	isSet bool
	node  func() node
}

// compileOne compiles the only member that is set.
func (c *compiler) compileOne(choices []choice) node {
	var found *choice
	for i := range choices {
		if !choices[i].isSet {
			continue
		}
		if found != nil {
			return c.fail(errors.New("found several conditions, want one: combine them with and_rules or and_ids"))
		}
		found = &choices[i]
	}
	if found == nil {
		return c.fail(errors.New("no condition is set: use \"any\": true to match everything"))
	}
	return found.node()
}

func (c *compiler) permission(p *Permission) node {
	return c.compileOne([]choice{
		{p.And != nil, func() node {
			return c.compileAll("and_rules.rules", len(p.And.Rules), func(i int) node { return c.permission(&p.And.Rules[i]) })
		}},
		{p.Or != nil, func() node {
			return c.compileAny("or_rules.rules", len(p.Or.Rules), func(i int) node { return c.permission(&p.Or.Rules[i]) })
		}},
		{p.Not != nil, func() node { return node{kind: kindNot, children: []node{c.permission(p.Not)}} }},
		{p.Any, func() node { return node{kind: kindAlways} }},
		{p.Header != nil, func() node { return c.header(p.Header) }},
		{p.Path != nil, func() node { return c.path(p.Path) }},
		{p.IP != nil, func() node { return c.addresses(kindDestination, p.IP) }},
		{p.Port != nil, func() node { return node{kind: kindPorts, first: uint32(*p.Port), end: uint32(*p.Port) + 1} }},
		{p.PortRange != nil, func() node { return c.ports(p.PortRange) }},
		{p.Metadata != nil, func() node { return c.metadata(p.Metadata) }},
		{p.Server != nil, func() node { return c.serverName(p.Server) }},
	})
}

func (c *compiler) principal(p *Principal) node {
	return c.compileOne([]choice{
		{p.And != nil, func() node {
			return c.compileAll("and_ids.ids", len(p.And.IDs), func(i int) node { return c.principal(&p.And.IDs[i]) })
		}},
		{p.Or != nil, func() node {
			return c.compileAny("or_ids.ids", len(p.Or.IDs), func(i int) node { return c.principal(&p.Or.IDs[i]) })
		}},
		{p.Not != nil, func() node { return node{kind: kindNot, children: []node{c.principal(p.Not)}} }},
		{p.Any, func() node { return node{kind: kindAlways} }},
		{p.Authenticated != nil, func() node { return c.authenticated(p.Authenticated) }},
		{p.SourceIP != nil, func() node { return c.addresses(kindPeer, p.SourceIP) }},
		{p.DirectIP != nil, func() node { return c.addresses(kindDirect, p.DirectIP) }},
		{p.RemoteIP != nil, func() node { c.rules.readsClient = true; return c.addresses(kindClient, p.RemoteIP) }},
		{p.Header != nil, func() node { return c.header(p.Header) }},
		{p.Path != nil, func() node { return c.path(p.Path) }},
		{p.Metadata != nil, func() node { return c.metadata(p.Metadata) }},
	})
}

func (c *compiler) header(h *match.HeaderMatcherConfig) node {
	compiled, err := h.Compile()
	if err != nil {
		return c.fail(err)
	}
	c.rules.readsFields = true
	c.rules.readsPath = c.rules.readsPath || compiled.ReadsPath()
	c.rules.readsCall = c.rules.readsCall || compiled.ReadsCall()
	return node{kind: kindHeader, header: &compiled}
}

func (c *compiler) path(p *Path) node {
	text, err := p.Path.Compile()
	if err != nil {
		return c.fail(fmt.Errorf("url_path.path: %w", err))
	}
	c.rules.readsPath, c.rules.readsCall = true, true
	return node{kind: kindPath, text: &text}
}

func (c *compiler) serverName(matcher *match.StringMatcherConfig) node {
	text, err := matcher.Compile()
	if err != nil {
		return c.fail(fmt.Errorf("requested_server_name: %w", err))
	}
	text = text.IgnoreCase() // RFC 6066 3
	return node{kind: kindServerName, text: &text}
}

func (c *compiler) addresses(kind nodeKind, r *match.CIDRRangeConfig) node {
	prefix, err := r.Compile()
	if err != nil {
		return c.fail(err)
	}
	set := match.NewCIDRSet([]netip.Prefix{prefix})
	return node{kind: kind, addresses: &set}
}

func (c *compiler) ports(p *PortRange) node {
	if uint32(p.Start) >= p.End {
		return c.fail(fmt.Errorf("destination_port_range is empty: start %d is not less than end %d", p.Start, p.End))
	}
	return node{kind: kindPorts, first: uint32(p.Start), end: p.End}
}

func (c *compiler) authenticated(a *Authenticated) node {
	if a.Name == nil {
		return node{kind: kindAuthenticated}
	}
	text, err := a.Name.Compile()
	if err != nil {
		return c.fail(fmt.Errorf("authenticated.principal_name: %w", err))
	}
	return node{kind: kindAuthenticated, text: &text}
}

func (c *compiler) metadata(m *MetadataMatcher) node {
	c.rules.readsMetadata = true
	if len(m.Path) == 0 {
		return c.fail(errors.New("metadata.path is empty"))
	}
	parts := make([]string, len(m.Path))
	for i := range m.Path {
		parts[i] = m.Path[i].Key
	}
	condition := &metadataCondition{namespace: protocol.Namespace(m.Namespace), key: protocol.MetadataKey(parts...), invert: m.Invert}
	count := 0
	var err error
	if v := m.Value.String; v != nil {
		count++
		condition.matchers, err = compileString(v)
	}
	if v := m.Value.Or; v != nil {
		count++
		condition.matchers, err = v.compile()
	}
	if v := m.Value.Bool; v != nil {
		count++
		condition.matchers = []match.StringMatcher{match.Exact(fmt.Sprint(*v))}
	}
	if v := m.Value.Present; v != nil {
		count++
		condition.test = testPresent
		if !*v {
			condition.test = testAbsent
		}
	}
	if v := m.Value.List; v != nil {
		count++
		condition.test = testElement
		switch element := v.OneOf; {
		case (element.String == nil) == (element.Or == nil):
			err = errors.New("list_match.one_of: expected one of string_match and or_match")
		case element.String != nil:
			condition.matchers, err = compileString(element.String)
		default:
			condition.matchers, err = element.Or.compile()
		}
	}
	if err == nil && count != 1 {
		err = fmt.Errorf("%d conditions are set, want one", count)
	}
	if err != nil {
		return c.fail(fmt.Errorf("metadata.value: %w", err))
	}
	return node{kind: kindMetadata, metadata: condition}
}

func compileString(c *match.StringMatcherConfig) ([]match.StringMatcher, error) {
	text, err := c.Compile()
	return []match.StringMatcher{text}, err
}
