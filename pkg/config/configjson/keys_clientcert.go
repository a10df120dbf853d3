package configjson

import "github.com/weft-proxy/weft/pkg/config"

// clientCertJSON is the part of extend_config about X-Forwarded-Client-Cert.
type clientCertJSON struct {
	ForwardClientCert string              `key:"forward_client_cert_details" doc:"Handling of X-Forwarded-Client-Cert, the header with details of client certificates. SANITIZE removes it. FORWARD_ONLY passes it on from clients with a verified certificate. APPEND_FORWARD also appends the client's certificate. SANITIZE_SET replaces it with the client's certificate. ALWAYS_FORWARD_ONLY passes it on from any client." enum:"SANITIZE|FORWARD_ONLY|APPEND_FORWARD|SANITIZE_SET|ALWAYS_FORWARD_ONLY" default:"SANITIZE" example:"\"SANITIZE_SET\""`
	ClientCertDetails *certificateDetails `key:"set_current_client_cert_details" doc:"Details that APPEND_FORWARD and SANITIZE_SET add to the certificate hash and to the URI of the listener's certificate."`
}

// certificateDetails is set_current_client_cert_details.
type certificateDetails struct {
	Subject bool `key:"subject" doc:"Add the distinguished name of the subject." default:"false" example:"true"`
	Cert    bool `key:"cert" doc:"Add the certificate as PEM." default:"false" example:"true"`
	Chain   bool `key:"chain" doc:"Add the certificate chain that the client sent, as PEM." default:"false" example:"true"`
	DNS     bool `key:"dns" doc:"Add the DNS names of the certificate." default:"false" example:"true"`
	URI     bool `key:"uri" doc:"Add the first URI of the certificate." default:"false" example:"true"`
}

// clientCert converts the keys of clientCertJSON.
func (r *reader) clientCert(e *extendJSON) config.XFCC {
	c := config.XFCC{Mode: config.XFCCMode(e.ForwardClientCert)}
	if c.Mode == "SANITIZE" {
		c.Mode = config.XFCCSanitize
	}
	if d := e.ClientCertDetails; d != nil {
		c.Subject, c.Cert, c.Chain, c.DNS, c.URI = d.Subject, d.Cert, d.Chain, d.DNS, d.URI
		if c.Mode != config.XFCCAppend && c.Mode != config.XFCCSet {
			r.report.Warnf(e.Node.Get("set_current_client_cert_details"), "set_current_client_cert_details has no effect unless forward_client_cert_details is APPEND_FORWARD or SANITIZE_SET")
		}
	}
	return c
}
