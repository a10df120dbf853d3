package protocol

// CarriesHTTP reports whether what a request asks to switch to (RFC 9110 7.8, RFC 8441)
// is a protocol whose bytes are HTTP requests again: as a tunnel they would pass by
// routes and filters. name is without a version.
func CarriesHTTP(name string) bool {
	for _, carrier := range [...]string{"h2c", "h2", "HTTP", "TLS"} {
		if EqualFold(name, carrier) {
			return true
		}
	}
	return false
}
