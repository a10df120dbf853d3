package nacos

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	defaultPort      = "8848"
	defaultContext   = "/nacos"
	defaultNamespace = "public"
	defaultGroup     = "DEFAULT_GROUP"

	// ruleGroup and mappingGroup are the groups of Nacos's configurations that Dubbo has
	// its rules in, and which applications provide an interface.
	ruleGroup    = "dubbo"
	mappingGroup = "mapping"
)

// location is where in a Nacos everything is.
type location struct {
	namespace string // "": public
	group     string
}

// parseRoot reads "namespace/group". A part that is empty, or left out, is the usual one.
func parseRoot(root string) (location, error) {
	namespace, group, _ := strings.Cut(root, "/")
	p := location{namespace, group}
	if p.namespace == defaultNamespace {
		p.namespace = ""
	}
	if p.group == "" {
		p.group = defaultGroup
	}
	for _, name := range []string{p.namespace, p.group} {
		if !isName(name) {
			return location{}, fmt.Errorf("the root %q: %q is no name: letters, digits and _-.: are allowed", root, name)
		}
	}
	return p, nil
}

// isName reports whether Nacos takes a text as the name of a configuration or group. It
// is true of the empty one.
func isName(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.:", r))
	})
}

// parseAddress reads "host:port,host:port/context" into URLs. A port that is left out is
// 8848, a context "/nacos".
func parseAddress(text string, secure bool) ([]string, error) {
	list, context, found := strings.Cut(text, "/")
	context = "/" + strings.Trim(context, "/")
	switch {
	case !found:
		context = defaultContext
	case context == "/":
		context = ""
	}
	if strings.ContainsFunc(context, func(r rune) bool { return r <= ' ' || strings.ContainsRune("?#%,", r) }) {
		return nil, fmt.Errorf("the address %q: %q is no path", text, context)
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	servers, err := registry.ParseServers(list, defaultPort)
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", text, err)
	}
	for i, server := range servers {
		base := scheme + server
		if u, err := url.Parse(base); err != nil || u.Port() == "" || u.User != nil {
			return nil, fmt.Errorf("the address %q: %q is no host:port", text, server)
		}
		servers[i] = base + context
	}
	return servers, nil
}

// separator is between the parts of a service's name in Nacos:
// category:interface:version:group, all four since Dubbo 2.7.6. Before, parts that are
// empty were left out.
const separator = ":"

// listName returns a name as Dubbo writes it in names of services, for inner classes:
// a.B$C is a.B___C.
func listName(name string) string { return strings.ReplaceAll(name, "$", "___") }

// configName returns a name as Dubbo writes it in names of configurations, and groups of
// them.
func configName(name string) string { return strings.ReplaceAll(listName(name), "/", "-") }

// serviceName returns the name that a URL is registered by.
func serviceName(u registry.URL) (string, error) {
	s := u.Service()
	if s.Interface == "" {
		return "", fmt.Errorf("%s has no interface", u)
	}
	for _, part := range []string{s.Interface, u.Category(), s.Version, s.Group} {
		if strings.ContainsAny(part, separator+"/@") {
			return "", fmt.Errorf("%q of %s cannot be part of a name in Nacos", part, s)
		}
	}
	if n := len(u.String()); n > registry.MaxURL {
		return "", fmt.Errorf("a URL of %s has %d bytes: there may be %d", s, n, registry.MaxURL)
	}
	return listName(strings.Join([]string{u.Category(), s.Interface, s.Version, s.Group}, separator)), nil
}

// splitName returns what category and interface a service of Nacos is of; false: it is
// none of Dubbo's URLs.
func splitName(name string) (category, iface string, ok bool) {
	parts := strings.SplitN(name, separator, 3)
	if len(parts) < 2 || parts[1] == "" {
		return "", "", false
	}
	switch parts[0] {
	case registry.Providers, registry.Configurators, registry.Routers:
		return parts[0], parts[1], true
	}
	return "", "", false
}

// mayHold reports whether URLs that asked accepts can be in a service of that name, of
// the interface that it asks for.
func mayHold(name string, asked registry.Service) bool {
	parts := strings.Split(listName(name), separator)
	if len(parts) != 4 {
		return true // as it was written once: the URLs say what they are of
	}
	asked = registry.Service{Interface: listName(asked.Interface), Group: listName(asked.Group), Version: listName(asked.Version)}
	return asked.Accepts(registry.URL{Path: parts[1], Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: parts[0], registry.ParameterInterface: parts[1], registry.ParameterVersion: parts[2], registry.ParameterGroup: parts[3],
	})})
}

// configKey is the name of a configuration, as Nacos has it.
type configKey struct{ id, group string }

// mappingOf returns the document that says which applications provide an interface; false:
// it cannot be in Nacos.
func mappingOf(iface string) (d configKey, ok bool) {
	d = configKey{configName(iface), mappingGroup}
	return d, d.isValid()
}

// revision is one of an application.
type revision struct{ application, name string }

func revisionOf(a *registry.InstanceRegistration) revision {
	return revision{a.Instance.Application, a.Revision}
}

// metadata returns the document that says what it provides.
func (r revision) metadata() configKey {
	return configKey{configName(r.application), configName(r.name)}
}

func (d configKey) isValid() bool {
	return d.id != "" && d.group != "" && isName(d.id) && isName(d.group)
}

// readMapping reads which applications provide an interface.
func readMapping(text string) []string {
	return registry.FirstApplications(text, func(string) bool { return true })
}

// Rules are documents in YAML. Views have them as URLs: override:// those of the kind
// configurators, condition:// and tag:// the others, of the host 0.0.0.0, with the
// parameters
//
//	category   configurators or routers
//	config     the name of the document, as "com.example.User:1.0.0:.configurators"
//	scope      service or application
//	yaml       the document as it is
const (
	parameterConfig = "config"
	parameterScope  = "scope"
	parameterYAML   = "yaml"

	scopeService     = "service"
	scopeApplication = "application"
)

// rule is a rule that counts for a service if its document is there.
type rule struct {
	configKey
	key, scope, protocol, category string
}

// rulesFor returns the rules of a service: of its own key, and of applications.
func rulesFor(s registry.Service, applications []string) []rule {
	var rules []rule
	add := func(key, scope string) {
		id := configName(key)
		if id == "" || !isName(id) {
			return // Nacos has none of that name
		}
		rules = append(rules,
			rule{configKey{id + ".configurators", ruleGroup}, key, scope, "override", registry.Configurators},
			rule{configKey{id + ".condition-router", ruleGroup}, key, scope, "condition", registry.Routers},
			rule{configKey{id + ".tag-router", ruleGroup}, key, scope, "tag", registry.Routers},
		)
	}
	add(s.Interface+separator+s.Version+separator+s.Group, scopeService)
	seen := map[string]bool{}
	for _, name := range applications {
		if !seen[name] {
			seen[name] = true
			add(name, scopeApplication)
		}
	}
	return rules
}

// url returns the rule as views have it.
func (r rule) url(text string) registry.URL {
	return registry.URL{Protocol: r.protocol, Host: "0.0.0.0", Path: r.key, Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: r.category,
		parameterConfig:            r.id,
		parameterScope:             r.scope,
		parameterYAML:              text,
	})}
}
