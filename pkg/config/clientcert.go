package config

// ClientCert says what happens to the X-Forwarded-Client-Cert header of requests, as in Envoy; the
// zero value removes it.
type ClientCert struct {
	Mode ClientCertMode
	// Subject, Cert, Chain, DNS and URI select what ClientCertAppend and ClientCertSet report about
	// the client certificate, in addition to its hash and the URI of the local certificate.
	Subject, Cert, Chain, DNS, URI bool
}

// ClientCertMode says which X-Forwarded-Client-Cert values are trusted.
type ClientCertMode string

// The modes. All except ClientCertAlways trust only clients with a verified certificate and remove
// the header of others.
const (
	ClientCertSanitize ClientCertMode = ""                    // remove it
	ClientCertForward  ClientCertMode = "FORWARD_ONLY"        // pass it on
	ClientCertAppend   ClientCertMode = "APPEND_FORWARD"      // pass it on and append the client certificate
	ClientCertSet      ClientCertMode = "SANITIZE_SET"        // replace it with the client certificate
	ClientCertAlways   ClientCertMode = "ALWAYS_FORWARD_ONLY" // pass on the value of any client
)
