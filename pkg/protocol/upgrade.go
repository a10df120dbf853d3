package protocol

// CarriesHTTP reports whether the protocol that a request asks to switch to (RFC 9110 7.8, RFC
// 8441) carries HTTP requests. In a tunnel these requests would bypass routes and filters. name has
// no version.
func CarriesHTTP(name string) bool {
	for _, protocol := range [...]string{"h2c", "h2", "HTTP", "TLS"} {
		if EqualFold(name, protocol) {
			return true
		}
	}
	return false
}
