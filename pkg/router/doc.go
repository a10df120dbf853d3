// Package router owns which route an exchange takes and what the route does to
// it. It is pure: a Table is compiled once from configuration, never changes,
// and may be used by any number of goroutines.
//
// # Virtual hosts
//
// The authority of a request picks one virtual host, by the most specific
// domain: host and port, then the host with any port ("host:*"), then the
// longest suffix with the port ("*.suffix:port"), then the longest with any
// ("*.suffix:*"), then "*". Case and one trailing dot make no difference, nor do
// the ways to write an IPv6 address. A domain without a port means requests
// without a port; no port and the scheme's own port (http 80, https 443) are the
// same to a domain that has no better match. The authority of an RPC request is its
// service, without a version, and a domain compares with it likewise. If none of the virtual host's
// routes match, no other virtual host is asked.
//
// # Routes
//
// Of the virtual host's routes the first that matches wins, exactly as if they
// were tried one after the other; they are not. One walk down a tree of paths
// finds every exact and prefix route that fits the path, another look the routes
// that ask for the value of a field only; expressions alone are tried in turn.
//
// # Paths
//
// A path is compared as it was sent, byte by byte, without its query: it is not
// decoded, and neither "//" nor "/./" nor "/../" are resolved. So "/%61dmin",
// "//admin", "/x/../admin" and "/admin;v=1" are not "/admin", and a route that is
// to keep callers from /admin does not keep them from what an upstream makes of
// these. Where routes are a fence, let them list what is allowed, in place of
// what is not, and end in a direct_response.
package router
