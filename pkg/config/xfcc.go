package config

// XFCC says what happens to the X-Forwarded-Client-Cert header of requests, as in Envoy; the zero
// value removes it.
type XFCC struct {
	Mode XFCCMode
	// Subject, Cert, Chain, DNS and URI select what XFCCAppend and XFCCSet report about the client
	// certificate, in addition to its hash and the URI of the local certificate.
	Subject, Cert, Chain, DNS, URI bool
}

// XFCCMode says which X-Forwarded-Client-Cert values are trusted.
type XFCCMode string

// The modes. All except XFCCAlwaysForward trust only clients with a verified certificate and remove
// the header of others.
const (
	XFCCSanitize      XFCCMode = ""                    // remove it
	XFCCForward       XFCCMode = "FORWARD_ONLY"        // pass it on
	XFCCAppend        XFCCMode = "APPEND_FORWARD"      // pass it on and append the client certificate
	XFCCSet           XFCCMode = "SANITIZE_SET"        // replace it with the client certificate
	XFCCAlwaysForward XFCCMode = "ALWAYS_FORWARD_ONLY" // pass on the value of any client
)
