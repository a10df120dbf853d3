package config

// UpgradeRules say to which protocols requests may switch. A request that may not switch gets 403.
type UpgradeRules struct {
	Rules []UpgradeRule // no rule for a protocol: not allowed
}

// UpgradeRule allows or denies one protocol.
type UpgradeRule struct {
	Protocol string // in lower case, such as "websocket"; "connect" for CONNECT requests
	Denied   bool
}

// InternalRedirect says which redirects of a host Weft follows itself, as Envoy does: it sends the
// request to the route of the new location. Clients get all other redirects.
type InternalRedirect struct {
	Max              int      // redirects of one request; default 1
	Codes            []int    // statuses that are followed; default 302
	AllowOtherScheme bool     // follows redirects from http to https and vice versa
	CopiedHeaders    []string // response headers that the new request gets

	// Conditions on the route of the new location:
	UnvisitedOnly  bool     // it is not the route of an earlier redirect from this route
	AllowedRoutes  []string // it has one of these names in the resource of a control plane; nil: any route
	SafeSchemeOnly bool     // it is not an https location of a request that came over http
}
