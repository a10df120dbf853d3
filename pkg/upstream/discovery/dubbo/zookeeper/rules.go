package zookeeper

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// Rules of Dubbo's configuration centre (2.7 and later) are documents in YAML, each in a
// node that is named by what it is about: an interface in a version and a group, or an
// application. Views have them as URLs: override:// those of the kind configurators,
// condition:// and tag:// the others. The host is 0.0.0.0, and their parameters are
//
//	category   configurators or routers
//	config     the name of the node, as "com.example.User:1.0.0:.configurators"
//	scope      service or application
//	yaml       the document as it is
const (
	ParameterConfig = "config"
	ParameterScope  = "scope"
	ParameterYAML   = "yaml"

	ScopeService     = "service"
	ScopeApplication = "application"
)

// suffix is what the name of a rule's node ends with, and what it is a rule of.
type suffix struct {
	text, protocol, category string
}

func suffixes() [3]suffix {
	return [3]suffix{
		{".configurators", "override", registry.Configurators},
		{".condition-router", "condition", registry.Routers},
		{".tag-router", "tag", registry.Routers},
	}
}

// rule is a rule that is there and counts for a service.
type rule struct {
	suffix
	path, name string
	key        string // the name without the suffix
	scope      string
}

// rulesOf returns the rules that are there for a service: of those groups and versions
// that are subscribed to, and of the applications that provide it or call it from here.
func (r *Registry) rulesOf(s *service) []rule {
	if len(s.rules.known.names) == 0 {
		return nil
	}
	var keys []string
	for sub := range s.subscriptions {
		keys = append(keys, ruleKey(sub.service))
	}
	own := len(keys)
	keys = append(keys, s.applications()...)
	for _, u := range s.providers.known.urls {
		keys = append(keys, u.Get("application"))
	}
	for e := range r.consumers[s.name] {
		keys = append(keys, e.url.Get("application"))
	}
	var found []rule
	seen := map[string]bool{"": true}
	for i, key := range keys {
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, kind := range suffixes() {
			name := key + kind.text
			if _, there := slices.BinarySearch(s.rules.known.names, name); !there {
				continue
			}
			scope := ScopeApplication
			if i < own {
				scope = ScopeService
			}
			found = append(found, rule{suffix: kind, path: s.rules.path + "/" + name, name: name, key: key, scope: scope})
		}
	}
	slices.SortFunc(found, func(a, b rule) int { return strings.Compare(a.name, b.name) })
	return found
}

// ruleKey is how the configuration centre names a service: interface:version:group.
func ruleKey(s registry.Service) string { return s.Interface + ":" + s.Version + ":" + s.Group }

// concerns reports whether a rule that counts for an interface counts for one of its
// services.
func (r rule) concerns(s registry.Service) bool {
	return r.scope == ScopeApplication || r.key == ruleKey(s)
}

// url returns the rule as views have it.
func (r rule) url(document string) registry.URL {
	return registry.URL{Protocol: r.protocol, Host: "0.0.0.0", Path: r.key, Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: r.category,
		ParameterConfig:            r.name,
		ParameterScope:             r.scope,
		ParameterYAML:              document,
	})}
}
