// Package rules reads what operators say of Dubbo services in registries: which
// parameters providers are to have, and which of them a call may go to. It is a function
// of its arguments.
//
//	Overrides   override:// and absent://, and documents of the kind configurators   override.go
//	Routers     condition:// and route://, and documents of the kind condition-router condition.go
//	            documents of the kind tag-router                                      tag.go
//	Chain       the routers for one consumer and some providers, asked for each call  chain.go
//	            the documents of the configuration centre                             document.go
//	            how values and addresses are compared                                 match.go
//
// A registry hands over rules as URLs; one with the parameter "yaml" is a document of the
// configuration centre, whose parameter "scope" says whether it is about a service or an
// application, and whose path is the name of that. A rule that cannot be read is left out,
// as Dubbo does, and said to whoever reads.
package rules

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
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
	anything = "*"
)

// MaxRules bounds how many overrides count for a service.
const MaxRules = 256

// Bounds of the routers of a service. They may deny calls: beyond these bounds every call is
// refused.
const (
	MostConditions = 1 << 14
	MostTagRules   = 1 << 12 // and the tags of each
)

// Warn is told, in words, of what has no effect or another one than in Dubbo.
type Warn func(text string)

func (w Warn) about(u registry.URL, problem string) {
	name := u.Get("config")
	if name == "" {
		name = u.Protocol + "://" + u.Address() + "/" + u.Path
	}
	if w != nil {
		w(fmt.Sprintf("rule %s: %s", clip(name), problem))
	}
}

func clip(text string) string {
	const most = 120
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// isOff reports whether a rule says that it does not count.
func isOff(u registry.URL) bool { return u.Get(keyEnabled) == "false" }

func priority(u registry.URL) int {
	n, err := strconv.Atoi(u.Get(keyPriority))
	if err != nil {
		return 0
	}
	return n
}

// value returns what rules know of a URL by a key, as Java's URL has it.
func value(u registry.URL, key string) (text string, there bool) {
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

// isNetwork reports whether text is the address of a network, as "10.0.0.0/8".
func isNetwork(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil
}
