package config

// Replies selects the local replies of a proxy: the responses that it sends itself.
type Replies struct {
	// Envoy sends the replies of Envoy: its statuses, texts and fields. Access logs then have the
	// flags of Envoy. Otherwise the replies are those of docs/errors.md.
	Envoy bool
}
