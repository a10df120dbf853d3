package nacos

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	defaultPort      = "8848"
	defaultContext   = "/nacos"
	defaultNamespace = "public"
	defaultGroup     = "DEFAULT_GROUP"

	// ruleGroup and mappingGroup are the configuration groups in which Dubbo stores rules, and the
	// applications that provide an interface.
	ruleGroup    = "dubbo"
	mappingGroup = "mapping"
)

// location is the namespace and the group that contain all registrations.
type location struct {
	namespace string // "": public
	group     string
}

// parseRoot parses "namespace/group". Empty or missing parts select the defaults.
func parseRoot(root string) (location, error) {
	namespace, group, _ := strings.Cut(root, "/")
	loc := location{namespace, group}
	if loc.namespace == defaultNamespace {
		loc.namespace = ""
	}
	if loc.group == "" {
		loc.group = defaultGroup
	}
	for _, name := range []string{loc.namespace, loc.group} {
		if !isName(name) {
			return location{}, fmt.Errorf("the root %q: %q is not a valid name: only letters, digits and _-.: are allowed", root, name)
		}
	}
	return loc, nil
}

// isName reports whether name is valid in Nacos for a configuration or group. It returns true for
// "".
func isName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.:", r))
	})
}

// parseAddress parses "host:port,host:port/context" into URLs. The default port is 8848; the
// default context is "/nacos".
func parseAddress(address string, useTLS bool) ([]string, error) {
	hosts, context, found := strings.Cut(address, "/")
	context = "/" + strings.Trim(context, "/")
	switch {
	case !found:
		context = defaultContext
	case context == "/":
		context = ""
	}
	if strings.ContainsFunc(context, func(r rune) bool { return r <= ' ' || strings.ContainsRune("?#%,", r) }) {
		return nil, fmt.Errorf("the address %q: %q is not a valid path", address, context)
	}
	scheme := "http://"
	if useTLS {
		scheme = "https://"
	}
	servers, err := registry.ParseServers(hosts, defaultPort)
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", address, err)
	}
	for i, server := range servers {
		base := scheme + server
		if u, err := url.Parse(base); err != nil || u.Port() == "" || u.User != nil {
			return nil, fmt.Errorf("the address %q: %q is not a valid host:port", address, server)
		}
		servers[i] = base + context
	}
	return servers, nil
}

// separator separates the parts of a service name in Nacos: category:interface:version:group. Dubbo
// 2.7.6 and later write all four; earlier versions omit empty parts.
const separator = ":"

// escapeServiceName returns a name as Dubbo writes it in service names. It replaces the $ of inner
// classes: a.B$C becomes a.B___C.
func escapeServiceName(name string) string { return strings.ReplaceAll(name, "$", "___") }

// escapeConfigName returns a name as Dubbo writes it in the names of configurations and their
// groups.
func escapeConfigName(name string) string {
	return strings.ReplaceAll(escapeServiceName(name), "/", "-")
}

// serviceName returns the service name under which a URL is registered.
func serviceName(u registry.URL) (string, error) {
	s := u.Service()
	if s.Interface == "" {
		return "", fmt.Errorf("URL %s has no interface", u)
	}
	for _, part := range []string{s.Interface, u.Category(), s.Version, s.Group} {
		if strings.ContainsAny(part, separator+"/@") {
			return "", fmt.Errorf("%q of %s cannot be part of a name in Nacos", part, s)
		}
	}
	if n := len(u.String()); n > registry.MaxURL {
		return "", fmt.Errorf("a URL of %s has %d bytes; the maximum is %d", s, n, registry.MaxURL)
	}
	return escapeServiceName(strings.Join([]string{u.Category(), s.Interface, s.Version, s.Group}, separator)), nil
}

// splitName returns the category and the interface of a service name. ok is false if the service
// does not hold providers, configurators or routers.
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

// mayContain reports whether the Nacos service with this name, of the requested interface, can
// contain URLs that requested accepts.
func mayContain(name string, requested registry.Service) bool {
	parts := strings.Split(escapeServiceName(name), separator)
	if len(parts) != 4 {
		return true // old format: the URLs contain the group and version
	}
	requested = registry.Service{Interface: escapeServiceName(requested.Interface), Group: escapeServiceName(requested.Group), Version: escapeServiceName(requested.Version)}
	return requested.Accepts(registry.URL{Path: parts[1], Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: parts[0], registry.ParameterInterface: parts[1], registry.ParameterVersion: parts[2], registry.ParameterGroup: parts[3],
	})})
}

// configKey identifies a configuration in Nacos.
type configKey struct{ id, group string }

// mappingKey returns the configuration with the applications that provide an interface. ok is false
// if its name is not valid in Nacos.
func mappingKey(iface string) (d configKey, ok bool) {
	d = configKey{escapeConfigName(iface), mappingGroup}
	return d, d.isValid()
}

// revision is a revision of an application.
type revision struct{ application, name string }

func revisionOf(reg *registry.InstanceRegistration) revision {
	return revision{reg.Instance.Application, reg.Revision}
}

// metadata returns the configuration with the metadata of the revision.
func (r revision) metadata() configKey {
	return configKey{escapeConfigName(r.application), escapeConfigName(r.name)}
}

func (d configKey) isValid() bool {
	return d.id != "" && d.group != "" && isName(d.id) && isName(d.group)
}

// readMapping parses the applications that provide an interface.
func readMapping(text string) []string {
	return registry.FirstApplications(text, func(string) bool { return true })
}

// Rules are YAML documents. Snapshots contain them as URLs with the host 0.0.0.0: override:// for
// configurators, condition:// and tag:// for the others. Their parameters are
//
//	category   configurators or routers
//	config     the name of the document, such as "com.example.User:1.0.0:.configurators"
//	scope      service or application
//	yaml       the document
const (
	parameterConfig = "config"
	parameterScope  = "scope"
	parameterYAML   = "yaml"

	scopeService     = "service"
	scopeApplication = "application"
)

// rule is a rule that applies to a service if its document exists.
type rule struct {
	configKey
	key, scope, protocol, category string
}

// rulesFor returns the possible rules of a service and of applications.
func rulesFor(s registry.Service, applications []string) []rule {
	var rules []rule
	add := func(key, scope string) {
		id := escapeConfigName(key)
		if id == "" || !isName(id) {
			return // not a valid name in Nacos, so there are no rules
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

// url returns the rule as snapshots contain it.
func (r rule) url(text string) registry.URL {
	return registry.URL{Protocol: r.protocol, Host: "0.0.0.0", Path: r.key, Parameters: registry.ParametersOf(map[string]string{
		registry.ParameterCategory: r.category,
		parameterConfig:            r.id,
		parameterScope:             r.scope,
		parameterYAML:              text,
	})}
}
