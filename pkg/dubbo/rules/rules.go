// Package rules parses the rules of operators for Dubbo services, and evaluates them. Rules
// determine the parameters of providers, and the providers that a call may go to. The results of
// the package depend only on its arguments.
//
//	Configurators  override:// and absent://, and documents of configurators           override.go
//	Routers        condition:// and route://, and documents of condition-router         condition.go
//	               documents of tag-router                                              tag.go
//	RouterChain    the routers for one consumer and some providers, used for each call  chain.go
//	               the documents of the configuration center                            document.go
//	               comparison of values and addresses                                   match.go
//
// A registry passes rules as URLs. A URL with the parameter "yaml" is a document of the
// configuration center: its parameter "scope" says whether it is for a service or an application,
// and its path is the name of that service or application. The package drops a rule that it cannot
// parse, as Dubbo does, and reports it through Warn.
package rules

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-proxy/weft/pkg/registry"
)

// The parameters of rules.
const (
	keyYAML     = "yaml"
	keyScope    = "scope"
	keyEnabled  = "enabled"
	keyPriority = "priority"
	keyForce    = "force"
	keyRule     = "rule"
	keyRouter   = "router"

	keyApplication = "application"
	keySide        = "side"

	scopeApplication = "application"

	consumerSide = "consumer"
	providerSide = "provider"

	anyHost  = "0.0.0.0"
	wildcard = "*"
)

// MaxRules bounds the configurators in a document. When a registry has that many for a service,
// further URLs and documents have no effect.
const MaxRules = 256

// Bounds of the routers of a service. Routers may deny calls: beyond these bounds Weft rejects
// every call.
const (
	MaxConditions = 1 << 14
	MaxTagRules   = 1 << 12 // also the bound of the tags in each rule
)

// Warn receives a text about each enabled rule that has no effect, or another effect than in Dubbo.
// It may be nil.
type Warn func(text string)

func (w Warn) report(u registry.URL, problem string) {
	name := u.Get("config")
	if name == "" {
		name = u.Protocol + "://" + u.Address() + "/" + u.Path
	}
	if w != nil {
		w(fmt.Sprintf("rule %s: %s", truncate(name), problem))
	}
}

func truncate(text string) string {
	const maxLen = 120
	if len(text) > maxLen {
		return text[:maxLen] + "…"
	}
	return text
}

// isDisabled reports whether a rule disables itself.
func isDisabled(u registry.URL) bool { return u.Get(keyEnabled) == "false" }

func priority(u registry.URL) int {
	n, err := strconv.Atoi(u.Get(keyPriority))
	if err != nil {
		return 0
	}
	return n
}

// urlValue returns the value of a key of a URL, as Java's URL does, and whether it exists.
func urlValue(u registry.URL, key string) (text string, exists bool) {
	switch key {
	case "host":
		return u.Host, true
	case "address":
		return u.Address(), true
	case "port":
		return strconv.Itoa(int(u.Port)), u.Port != 0
	case "protocol":
		return u.Protocol, true
	case "path":
		return u.Path, true
	case "username":
		return u.Username, u.Username != ""
	}
	return u.Parameters.Lookup(key)
}

// parseNetwork parses the address of a network, such as "10.0.0.0/8".
func parseNetwork(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil
}
