package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Configurators are the rules that change parameters, in the order in which they apply: URLs of
// Dubbo 2.6, then documents for applications, then documents for services. Within each stage they
// are sorted by host and then by priority, so that the more specific rule applies last. They are
// immutable.
type Configurators []configurator

type configurator struct {
	stage    stage
	priority int
	host     string // consumer or provider host; 0.0.0.0 or "": all
	port     uint16 // provider port; 0: any
	// side selects whose parameters the rule changes. A rule of Dubbo 2.6 without a side applies to
	// both.
	side        string
	application string           // of that side; "" and "*": any
	service     string           // group/interface:version; "" and "*": any
	urlService  registry.Service // of a rule of Dubbo 2.6: its group and version restrict the providers
	providers   []string
	conditions  map[string]string // required values by parameter, from parameters named "~parameter"
	match       *match            // of a v3.0 document; nil: no further condition
	onlyMissing bool              // the rule sets only missing parameters
	newValues   map[string]string // by parameter
}

type stage uint8

const (
	stageURLs stage = iota
	stageApplication
	stageService
)

// match contains the conditions of a v3.0 document.
type match struct {
	address, provider     []textMatch // one must match; none: any
	services, application []textMatch // one must match; none: any
	parameters            []parameterMatch
}

// protectedKeys returns the parameters that a rule cannot change: they identify the service, or
// select the targets of the rule.
func protectedKeys() []string {
	return []string{
		"category", "check", "dynamic", keyEnabled, "group", "version", keyApplication, keySide,
		"configVersion", "compatible_config", "interfaces", "interface", "providerAddresses", keyPriority, keyForce, "anyhost",
	}
}

// ReadConfigurators parses the configurators of a registry.
func ReadConfigurators(urls []registry.URL, warn Warn) Configurators {
	var configurators Configurators
	for _, u := range urls {
		switch {
		case u.Protocol == "empty":
			return nil
		case len(configurators) >= MaxRules:
			warn.report(u, "too many rules: this rule has no effect")
			continue
		case u.Get(keyYAML) != "":
			configurators = append(configurators, readOverrideDocument(u, warn)...)
		case u.Protocol != "override" && u.Protocol != "absent":
			warn.report(u, "unknown rule type")
		case !isDisabled(u):
			configurators = append(configurators, readOverrideURL(u)...)
		}
	}
	slices.SortStableFunc(configurators, func(a, b configurator) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.host, b.host), cmp.Compare(a.priority, b.priority))
	})
	return configurators
}

// readOverrideURL parses a rule of Dubbo 2.6.
func readOverrideURL(u registry.URL) []configurator {
	c := configurator{
		priority: priority(u), host: u.Host, port: u.Port, side: u.Get(keySide),
		application: cmp.Or(u.Get(keyApplication), u.Username),
		urlService:  u.Service(),
		onlyMissing: u.Protocol == "absent",
		conditions:  map[string]string{}, newValues: map[string]string{},
	}
	if text := u.Get("providerAddresses"); text != "" {
		c.providers = strings.Split(text, ",")
	}
	for key, value := range u.Parameters.All() {
		switch name, isCondition := strings.CutPrefix(key, "~"); {
		case isCondition:
			c.conditions[name] = value
		case !slices.Contains(protectedKeys(), key):
			c.newValues[key] = value
		}
	}
	if len(c.newValues) == 0 {
		return nil
	}
	return []configurator{c}
}

// readOverrideDocument parses a document, which may contain several rules.
func readOverrideDocument(u registry.URL, warn Warn) (configurators []configurator) {
	root, err := readDocument(u)
	if err != nil {
		warn.report(u, err.Error())
		return nil
	}
	enabled := boolOr(root.Get("enabled"), true)
	for item := range root.Get("configs").All() {
		applies := enabled
		if itemType := item.Get("type").Text(); itemType != "" && itemType != "general" {
			applies = boolOr(item.Get("enabled"), false) // items of these types are disabled by default
		}
		if !applies {
			continue
		}
		parsed, problem := readOverrideItem(u, item)
		if problem != "" {
			warn.report(u, item.Path()+": "+problem)
			continue
		}
		if configurators = append(configurators, parsed...); len(configurators) > MaxRules {
			warn.report(u, "too many rules in one document: the remaining rules have no effect")
			return configurators[:MaxRules]
		}
	}
	return configurators
}

func readOverrideItem(u registry.URL, item document.Node) (configurators []configurator, problem string) {
	c := configurator{stage: stageService, side: item.Get("side").Text(), newValues: map[string]string{}, providers: stringList(item.Get("providerAddresses"))}
	if c.side != consumerSide && c.side != providerSide {
		return nil, "side must be consumer or provider, found " + item.Get("side").Describe()
	}
	for p := range item.Get("parameters").All() {
		if !slices.Contains(protectedKeys(), p.Key()) {
			c.newValues[p.Key()] = p.Text()
		}
	}
	if len(c.newValues) == 0 {
		return nil, "no parameters that a rule can change"
	}
	if c.match, problem = readMatch(item.Get("match")); problem != "" {
		return nil, problem
	}
	services, applications := []string{wildcard}, stringList(item.Get("applications"))
	if u.Get(keyScope) == scopeApplication {
		c.stage = stageApplication
		applications = []string{u.Path}
		if list := stringList(item.Get("services")); len(list) > 0 {
			services = list
		}
	}
	if len(applications) == 0 {
		applications = []string{wildcard}
	}
	addresses := stringList(item.Get("addresses"))
	if len(addresses) == 0 {
		addresses = []string{anyHost}
	}
	if len(addresses)*len(services)*len(applications) > MaxRules {
		return nil, "too many combinations of addresses, services and applications"
	}
	for _, address := range addresses {
		target, err := registry.Parse("override://" + address)
		if err != nil {
			return nil, err.Error()
		}
		c.host, c.port = target.Host, target.Port
		for _, c.service = range services {
			for _, c.application = range applications {
				configurators = append(configurators, c)
			}
		}
	}
	return configurators, ""
}

func readMatch(n document.Node) (m *match, problem string) {
	if !n.Exists() {
		return nil, ""
	}
	if n.Kind() != document.Object {
		return nil, "match must be an object, found " + n.Describe()
	}
	m = &match{}
	for member := range n.All() {
		switch strings.ToLower(member.Key()) {
		case "address":
			m.address, problem = readTextMatches(member)
		case "provideraddress":
			m.provider, problem = readTextMatches(member)
		case "service":
			m.services, problem = readTextMatches(member)
		case "app", "application":
			m.application, problem = readTextMatches(member)
		case "param":
			m.parameters, problem = readParameterMatches(member)
		default:
			problem = "unknown match " + truncate(member.Key())
		}
		if problem != "" {
			return nil, problem
		}
	}
	return m, ""
}

// readTextMatches parses one condition, or {oneof: […]}.
func readTextMatches(n document.Node) (matches []textMatch, problem string) {
	list := n.Get("oneof")
	if !list.Exists() {
		m, problem := readTextMatch(n)
		return []textMatch{m}, problem
	}
	for item := range list.All() {
		m, problem := readTextMatch(item)
		if problem != "" {
			return nil, problem
		}
		matches = append(matches, m)
	}
	if len(matches) == 0 {
		return nil, "oneof is empty"
	}
	return matches, ""
}

// Apply returns a provider after the rules have changed it, and the parameters with which the
// consumer calls it. consumer identifies the consumer; parameters are its configured parameters.
// Apply does not copy values that no rule changes.
func (cs Configurators) Apply(provider, consumer registry.URL, parameters map[string]string) (registry.URL, map[string]string) {
	cloned := false
	for i := range cs {
		c := &cs[i]
		asConsumer := c.appliesTo(provider, consumer, consumerSide)
		if !asConsumer && !c.appliesTo(provider, consumer, providerSide) {
			continue
		}
		if asConsumer && !cloned {
			parameters, cloned = cloneParameters(parameters), true
		}
		changed := provider.Parameters.Map()
		for key, value := range c.newValues {
			if c.onlyMissing && (provider.Get(key) != "" || asConsumer && parameters[key] != "") {
				continue
			}
			changed[key] = value
			if asConsumer {
				parameters[key] = value // a rule overrides the parameter of the consumer
			}
		}
		provider.Parameters = registry.ParametersOf(changed)
	}
	return provider, parameters
}

func cloneParameters(parameters map[string]string) map[string]string {
	c := make(map[string]string, len(parameters)+1)
	maps.Copy(c, parameters)
	return c
}

// appliesTo reports whether the rule applies to one side of a call from consumer to provider.
func (c *configurator) appliesTo(provider, consumer registry.URL, side string) bool {
	u, host := provider, provider.Host
	lookup := func(key string) string { text, _ := urlValue(provider, key); return text }
	if side == consumerSide {
		u, host = consumer, consumer.Host
		lookup = func(key string) string {
			if text := consumer.Get(key); text != "" {
				return text
			}
			text, _ := urlValue(provider, key)
			return text
		}
	}
	switch {
	case c.side != "" && c.side != side:
		return false
	case !c.matchesHost(provider, host, side):
		return false
	case !isAny(c.application) && c.application != u.Get(keyApplication):
		return false
	case !isAny(c.service) && c.service != serviceKey(provider):
		return false
	case !c.matchesService(provider):
		return false
	case len(c.providers) > 0 && !matchesAnyAddress(c.providers, provider.Host, provider.Port):
		return false
	case c.match != nil && !c.match.matches(provider, u, host):
		return false
	}
	for key, want := range c.conditions {
		if want != wildcard && lookup(key) != want {
			return false
		}
	}
	return true
}

// matchesService reports whether a provider has the group and version of a rule, because a consumer
// may accept several groups and versions. A rule with neither matches every provider.
func (c *configurator) matchesService(provider registry.URL) bool {
	if c.urlService.Group == "" && c.urlService.Version == "" {
		return true
	}
	accepted := c.urlService
	accepted.Interface = provider.Service().Interface // the interface of the rule may be a wildcard
	return accepted.Accepts(provider)
}

// matchesHost reports whether the host of a rule matches a side. A rule of Dubbo 2.6 with a port
// selects a provider, on either side. Without a port it selects a consumer, or any host.
func (c *configurator) matchesHost(provider registry.URL, host, side string) bool {
	anyHostMatches := c.host == anyHost || c.host == ""
	if c.port != 0 && (c.stage == stageURLs || side == providerSide) {
		return c.port == provider.Port && (anyHostMatches || c.host == provider.Host)
	}
	if c.stage == stageURLs && side == providerSide {
		return anyHostMatches
	}
	return anyHostMatches || c.host == host
}

func isAny(name string) bool { return name == "" || name == wildcard }

func serviceKey(u registry.URL) string {
	s := u.Service()
	s.Version = registry.PlainVersion(s.Version)
	return s.String()
}

func (m *match) matches(provider, side registry.URL, host string) bool {
	if !matchesAnyText(m.address, host) || !matchesAnyText(m.provider, provider.Address()) && !matchesAnyText(m.provider, provider.Host) {
		return false
	}
	if !matchesAnyText(m.services, serviceKey(provider)) || !matchesAnyText(m.application, side.Get(keyApplication)) {
		return false
	}
	for _, p := range m.parameters {
		if !p.matches(provider) {
			return false
		}
	}
	return true
}

// matchesAnyText reports whether one of the conditions matches, or there is none.
func matchesAnyText(matches []textMatch, value string) bool {
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m textMatch) bool { return m.matches(value) })
}
