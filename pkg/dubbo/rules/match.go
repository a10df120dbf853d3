package rules

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// glob reports whether value matches pattern, in which the last "*" matches any text.
func glob(pattern, value string) bool {
	if pattern == wildcard || pattern == value {
		return true
	}
	if pattern == "" || value == "" {
		return false
	}
	i := strings.LastIndexByte(pattern, '*')
	if i < 0 {
		return false
	}
	head, tail := pattern[:i], pattern[i+1:]
	return len(value) >= len(head)+len(tail) && strings.HasPrefix(value, head) && strings.HasSuffix(value, tail)
}

// matchesAnyAddress reports whether one of the expressions matches host:port. An expression is an
// address with a port ("*": any port), an address without one ("0.0.0.0" and "*": any address), a
// network ("10.0.0.0/8"), or an address with parts that are "*" or ranges ("10.0.1.5-9").
func matchesAnyAddress(expressions []string, host string, port uint16) bool {
	for _, e := range expressions {
		if matchesHost(e, host) {
			return true
		}
		colon := strings.LastIndexByte(e, ':')
		if colon < 0 || e[colon+1:] != wildcard && e[colon+1:] != strconv.Itoa(int(port)) {
			continue
		}
		if matchesHost(strings.Trim(e[:colon], "[]"), host) {
			return true
		}
	}
	return false
}

func matchesHost(expression, host string) bool {
	if expression == anyHost || expression == wildcard || expression == host {
		return true
	}
	if network, ok := parseNetwork(expression); ok {
		a, err := netip.ParseAddr(host)
		return err == nil && network.Contains(a)
	}
	if !strings.ContainsAny(expression, "*-") {
		return false
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return false
	}
	separator := "."
	if strings.Contains(expression, ":") {
		separator = ":"
	}
	parts, hostParts := strings.Split(expression, separator), strings.Split(host, separator)
	if len(parts) != len(hostParts) {
		return false
	}
	for i, part := range parts {
		if !matchesAddressPart(part, hostParts[i], separator) {
			return false
		}
	}
	return true
}

// matchesAddressPart compares one part of an address, which is decimal in IPv4 and hexadecimal in
// IPv6.
func matchesAddressPart(expression, part, separator string) bool {
	if expression == wildcard || expression == part {
		return true
	}
	base := 10
	if separator == ":" {
		base = 16
	}
	from, to, ok := strings.Cut(expression, "-")
	if !ok {
		return false
	}
	low, err1 := strconv.ParseUint(from, base, 16)
	high, err2 := strconv.ParseUint(to, base, 16)
	n, err3 := strconv.ParseUint(part, base, 16)
	return err1 == nil && err2 == nil && err3 == nil && low <= n && n <= high
}

// textMatch is a condition on a text.
type textMatch struct {
	kind, text string
	expression *regexp.Regexp // only for matchRegex
}

// The values of textMatch.kind, spelled as in documents.
const (
	matchExact       = "exact"
	matchPrefix      = "prefix"
	matchRegex       = "regex"
	matchNotEmpty    = "noempty"
	matchEmpty       = "empty"
	matchWildcard    = "wildcard"
	matchCIDR        = "cidr"
	matchCIDRInDubbo = "cird" // Dubbo's spelling
)

// readTextMatch parses {exact: a} and the other kinds. An unknown kind is an error, because a rule
// without the condition would match more.
func readTextMatch(n document.Node) (m textMatch, problem string) {
	if n.Kind() != document.Object || n.Len() != 1 {
		return m, "a match must be one condition, found " + n.Describe()
	}
	for condition := range n.All() {
		m = textMatch{kind: strings.ToLower(condition.Key()), text: condition.Text()}
	}
	if m.kind == matchCIDRInDubbo {
		m.kind = matchCIDR
	}
	switch m.kind {
	case matchExact, matchPrefix, matchNotEmpty, matchEmpty, matchWildcard:
	case matchCIDR:
		if _, ok := parseNetwork(m.text); !ok {
			return m, m.text + " is not a valid network"
		}
	case matchRegex:
		var err error
		if m.expression, err = regexp.Compile("^(?:" + m.text + ")$"); err != nil {
			return m, err.Error()
		}
	default:
		return m, "unknown match " + truncate(m.kind)
	}
	return m, ""
}

func (m textMatch) matches(value string) bool {
	switch m.kind {
	case matchExact:
		return value == m.text
	case matchPrefix:
		return strings.HasPrefix(value, m.text)
	case matchNotEmpty:
		return value != ""
	case matchEmpty:
		return value == ""
	case matchWildcard:
		return glob(m.text, value) || matchesHost(m.text, value)
	case matchCIDR:
		return matchesHost(m.text, value)
	case matchRegex:
		return m.expression.MatchString(value)
	}
	return false
}
