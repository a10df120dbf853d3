// Package router chooses the route for an exchange and applies the changes that the route makes.
// The package is pure: a Table is compiled once from configuration, never changes, and is safe for
// concurrent use.
//
// # Virtual hosts
//
// The authority of a request selects one virtual host, by the most specific domain: host and port,
// then the host with any port ("host:*"), then the longest suffix with the port ("*.suffix:port"),
// then the longest suffix with any port ("*.suffix:*"), then "prefix.*", then "*". Case, one
// trailing dot and the notation of an IPv6 address make no difference; see
// config.RouteTable.LiteralDomains for tables that ignore only case. A domain without a port
// matches requests without a port. A missing port and the scheme's default port (http 80, https
// 443) are the same unless a domain matches exactly. The authority of an RPC request is its
// service, without a version; it is compared with domains in the same way. If none of the virtual
// host's routes match, no other virtual host is tried.
//
// # Routes
//
// Among the virtual host's routes, the first that matches wins, exactly as if they were tried in
// order. Find does not try them all: one walk down a tree of paths finds every exact and prefix
// route for the path, and a lookup by value finds the routes that require one header value. Find
// tries one after the other only routes that share a path or a header value, and routes whose path
// is an expression, case-insensitive, or a prefix of whole segments.
//
// # Paths
//
// Find compares a path as the client sent it, without its query. It neither decodes the path nor
// resolves "//", "/./" or "/../". NormalizeTarget does so before Find, for a listener that is
// configured for it. So "/%61dmin", "//admin", "/x/../admin" and "/admin;v=1" are not "/admin". A
// route that rejects "/admin" does not reject these paths, which an upstream may normalize to
// "/admin". For access control, list the allowed paths instead of the denied paths, and end the
// list with a direct_response.
package router
