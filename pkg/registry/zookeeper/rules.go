package zookeeper

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Rules of Dubbo's configuration center (2.7 and later) are YAML documents. Each is the data of a
// znode whose name contains its subject: an interface with version and group, or an application.
// Snapshots contain rules as URLs with the host 0.0.0.0: override:// for configurators,
// condition:// and tag:// for the others. Their parameters are
//
//	category   configurators or routers
//	config     the name of the znode, such as "com.example.User:1.0.0:.configurators"
//	scope      service or application
//	yaml       the document
const (
	ParameterConfig = "config"
	ParameterScope  = "scope"
	ParameterYAML   = "yaml"

	ScopeService     = "service"
	ScopeApplication = "application"
)

// suffix is the suffix of a rule's name. It determines the protocol and the category of the URL.
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

// rule is an existing rule for services of an interface; see appliesTo.
type rule struct {
	suffix
	path, name string
	key        string // the name without the suffix
	scope      string
}

// rulesOf returns the existing rules for an interface: for the subscribed groups and versions, and
// for the applications that provide it, or that consume it in this process.
func (r *Registry) rulesOf(s *subscribedInterface) []rule {
	if len(s.rules.content.names) == 0 {
		return nil
	}
	var keys []string
	for sub := range s.subscriptions {
		keys = append(keys, ruleKey(sub.service))
	}
	serviceKeys := len(keys)
	keys = append(keys, s.applications()...)
	for _, u := range s.providers.content.urls {
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
		for _, sfx := range suffixes() {
			name := key + sfx.text
			if _, exists := slices.BinarySearch(s.rules.content.names, name); !exists {
				continue
			}
			scope := ScopeApplication
			if i < serviceKeys {
				scope = ScopeService
			}
			found = append(found, rule{suffix: sfx, path: s.rules.path + "/" + name, name: name, key: key, scope: scope})
		}
	}
	slices.SortFunc(found, func(a, b rule) int { return strings.Compare(a.name, b.name) })
	return found
}

// ruleKey returns the name of a service in the configuration center: interface:version:group.
func ruleKey(s registry.Service) string { return s.Interface + ":" + s.Version + ":" + s.Group }

// appliesTo reports whether a rule for an interface applies to one of its services.
func (r rule) appliesTo(s registry.Service) bool {
	return r.scope == ScopeApplication || r.key == ruleKey(s)
}

// url returns the rule as snapshots contain it.
func (r rule) url(document string) registry.URL {
	return registry.URL{Protocol: r.protocol, Host: "0.0.0.0", Path: r.key, Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: r.category,
		ParameterConfig:            r.name,
		ParameterScope:             r.scope,
		ParameterYAML:              document,
	})}
}
