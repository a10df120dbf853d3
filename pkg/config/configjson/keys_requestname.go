package configjson

// requestNameJSON contains the cluster keys that derive SNI and verification from the request's
// host. Their names are Envoy's.
type requestNameJSON struct {
	AutoSNI    bool   `key:"auto_sni" doc:"Ask hosts, by SNI, for the name that a request of HTTP is for, in the place of tls_context.server_name: its host without the port; an address is not asked for. Requests for different names never share a connection." example:"true"`
	AutoVerify bool   `key:"auto_san_validation" doc:"The certificate of a host must be for the name that the request is for, whatever else tls_context asks for." example:"true"`
	NameHeader string `key:"override_auto_sni_header" doc:"Field whose value is that name, if a request has it; absent: it is always the request's host." example:"\"x-server-name\""`
}
