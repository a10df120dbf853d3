package resource

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// readDomains reads the domains of a virtual host, in lower case. Like Envoy, it rejects duplicates.
func (p fieldReader) readDomains(list []string) (domains []string) {
	if len(list) == 0 {
		p.reject("is empty")
	}
	for i, d := range list {
		if problem := domainProblem(d); problem != "" {
			p.index(i).reject("%q: %s", d, problem)
			continue
		}
		if d = lower(d); slices.Contains(domains, d) {
			p.index(i).reject("%q is already a domain of the virtual host", d)
			continue
		}
		domains = append(domains, d)
	}
	return domains
}

// domainProblem returns why a domain is not supported, or "" if it is supported.
func domainProblem(domain string) string {
	switch rest, wildcard := strings.CutSuffix(domain, "*"); {
	case !wildcard || rest == "":
		return ""
	case strings.HasPrefix(rest, "*"):
		return "a wildcard is supported at one end only"
	}
	return ""
}

// checkDomains rejects a domain that two virtual hosts have.
func (p fieldReader) checkDomains(t *config.RouteTable) {
	owner := make(map[string]string)
	for i, v := range t.VirtualHosts {
		for _, d := range v.Domains {
			if other, dup := owner[d]; dup {
				p.field("virtual_hosts").index(i).field("domains").reject("%q is already a domain of the virtual host %q", d, other)
			}
			owner[d] = v.Name
		}
	}
}

// lower returns s with its ASCII letters in lower case. Like Envoy, it does not change other
// letters: the Kelvin sign is not k.
func lower(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return 'A' <= c && c <= 'Z' }) {
		return string(protocol.AppendLower(nil, s))
	}
	return s
}
