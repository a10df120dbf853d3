package configjson

// requestNameJSON contains the cluster keys that derive SNI and verification from the request's
// host. Their names are Envoy's.
type requestNameJSON struct {
	AutoSNI    bool   `key:"auto_sni" doc:"Send the hostname of an HTTP request (its authority without the port) as SNI to hosts, instead of tls_context.server_name, unless it is an IP address. Requests for different names never share a connection." example:"true"`
	AutoVerify bool   `key:"auto_san_validation" doc:"Require that the certificate of a host matches the hostname of the request, in addition to the checks of tls_context." example:"true"`
	NameHeader string `key:"override_auto_sni_header" doc:"Header that overrides the hostname if the request has it. Absent: the hostname of the request is always used." example:"\"x-server-name\""`
}
