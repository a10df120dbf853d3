package config

// ClientCert says what happens to the X-Forwarded-Client-Cert field of requests, in
// Envoy's words: the zero value removes it.
type ClientCert struct {
	Mode ClientCertMode
	// What is told of the caller's certificate beside its hash and the name of our own,
	// by ClientCertAppend and ClientCertSet.
	Subject, Cert, Chain, DNS, URI bool
}

// ClientCertMode says whose word counts.
type ClientCertMode string

// The modes. All but the last believe callers only if they showed a certificate that was
// verified; others' field is removed.
const (
	ClientCertSanitize ClientCertMode = ""                    // remove it
	ClientCertForward  ClientCertMode = "FORWARD_ONLY"        // pass it on
	ClientCertAppend   ClientCertMode = "APPEND_FORWARD"      // pass it on, and add the caller
	ClientCertSet      ClientCertMode = "SANITIZE_SET"        // replace it by the caller
	ClientCertAlways   ClientCertMode = "ALWAYS_FORWARD_ONLY" // pass on what anybody says
)
